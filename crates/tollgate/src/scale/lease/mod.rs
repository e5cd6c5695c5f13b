//! Leases: units that a process fetches ahead of demand, and spends without a round trip.

mod account;
mod agenda;
mod background;
mod books;
mod demand;
mod fetches;
mod leases;
mod returns;
mod settings;
mod stats;

pub use leases::Leases;
pub use settings::Lease;
pub use stats::{HeldLease, LeaseStats};
