//! Leases: units that a process fetches ahead of demand, and spends without a round trip.

// From top to bottom; imports run down this list only: leased (the store), background (what its
// tasks hold), books (all keys), account (one key: what it holds, how much it fetches), stats,
// demand (what it uses), settings.
mod account;
mod background;
mod books;
mod demand;
mod leased;
mod settings;
mod stats;

pub use leased::{Fetching, Leased};
pub use settings::{Lease, LeaseError};
pub use stats::{HeldLease, LeaseStats};
