//! Gives policies without keys to a layer and to a limiter.

use tollgate::{Limiter, Policy, Quota, RateLimitLayer};

fn layer(policy: Policy) {
    let _ = RateLimitLayer::new(policy);
}

fn limiter(policies: [Policy; 2]) {
    let _ = Limiter::new(policies);
}

fn quota() {
    let _ = RateLimitLayer::new(Quota::per_minute(100));
}

fn main() {}
