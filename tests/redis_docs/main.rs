//! What the documentation of tollgate-redis says about memory, permissions, stored values and the
//! work of a check, measured on real servers.

mod memory;
mod permissions;
mod values;
mod work;
