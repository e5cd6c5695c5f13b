//! What the documentation of tollgate-redis says about memory, permissions, stored values and the
//! work of a check, and the guide about the slow log: measured on real servers.

mod memory;
mod permissions;
mod slow_log;
mod values;
mod work;
