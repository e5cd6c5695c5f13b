//! Gives a store that can fail to a layer and to a limiter, without a failure policy.

use tollgate::failure::Guarded;
use tollgate::{Limiter, MemoryStore, Quota, RateLimitLayer};

/// It can fail because it can time out.
type Remote = Guarded<MemoryStore>;

fn layer(remote: Remote) {
    let _ = RateLimitLayer::per_ip(Quota::per_minute(100)).store(remote);
}

fn limiter(remote: Remote) {
    let _ = Limiter::new([]).store(remote);
}

fn main() {}
