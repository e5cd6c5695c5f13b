//! The oracles against the algorithms, and the suite against stores with one mistake each.

mod histories;
mod invariants;
mod rates;
mod suite;
mod vectors;
mod versions;
