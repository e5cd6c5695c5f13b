//! Asks a store without waiting that may answer later.

use tollgate::failure::{Answering, ByShare, Guarded};
use tollgate::{Key, Limiter, MemoryStore};

/// Over a network, it would have to be awaited.
type Remote = Answering<Guarded<MemoryStore>, ByShare<MemoryStore>>;

fn check(limiter: &Limiter<Remote>) -> bool {
    limiter.check_now(&Key::from("ada"), 1).is_ok()
}

fn main() {}
