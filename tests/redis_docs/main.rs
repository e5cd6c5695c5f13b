//! What the documentation of tollgate-redis says about memory and permissions, measured and tried on each server.

mod memory;
mod permissions;
mod values;
mod work;
