//! Leases and the cache of denials: fewer round trips, within the bounds of `tollgate::scale`.

mod contract;
mod fleets;
