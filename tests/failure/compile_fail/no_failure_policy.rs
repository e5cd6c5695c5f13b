//! A store that can fail, given to a layer and to a limiter without a word on what its failures mean.

use tollgate::failure::Timeout;
use tollgate::{Limiter, MemoryStore, Quota, RateLimitLayer};

/// It can fail since it can be late, as a store over a network can.
type Remote = Timeout<MemoryStore>;

fn layer(remote: Remote) {
    let _ = RateLimitLayer::per_ip(Quota::per_minute(100)).store(remote);
}

fn limiter(remote: Remote) {
    let _ = Limiter::new([]).store(remote);
}

fn main() {}
