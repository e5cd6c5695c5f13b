//! Gives policies without keys to a layer and to a limiter.

use tollgate::{Policy, Quota, RateLimitLayer, RequestLimiter};

fn layer(policy: Policy) {
    let _ = RateLimitLayer::new(policy);
}

fn limiter(policies: [Policy; 2]) {
    let _ = RequestLimiter::new(policies);
}

fn quota() {
    let _ = RateLimitLayer::new(Quota::per_minute(100));
}

fn main() {}
