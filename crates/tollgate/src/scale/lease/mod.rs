//! Leases: units that a process fetches ahead of demand, and spends without a round trip.

// From top to bottom; imports run down this list only: fetches and returns (what leased does in the
// background), leased (the store), background (what its tasks hold), books (all keys), underway,
// agenda (when their leases end), account (one key: what it holds, how much it fetches), stats,
// demand (what it uses), settings.
mod account;
mod agenda;
mod background;
mod books;
mod demand;
mod fetches;
mod leased;
mod returns;
mod settings;
mod stats;
mod underway;

pub use leased::{Fetching, Leased};
pub use settings::{Lease, LeaseError};
pub use stats::{HeldLease, LeaseStats};
