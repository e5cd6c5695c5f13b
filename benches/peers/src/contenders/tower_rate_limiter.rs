//! `tower-rate-limiter` with its store in memory: a fixed window over moka. With the quotas of this
//! comparison it allows the same requests as the GCRA limiters.

use tower::Layer;
use tower_rate_limiter::{IpKeyExtractor, MemoryStore, RateLimitFields, RateLimitLayer};

use super::{Contender, Part, service};
use crate::measure::{Layered, Subject};
use crate::scenario::{KeySource, Plan};

pub(super) fn contenders() -> [Contender; 2] {
    let contender =
        |part, build| Contender { package: "tower-rate-limiter", part, key: KeySource::PeerIp, build };
    [
        contender(Part::Layer, |plan| build(plan, RateLimitFields::Draft11)),
        contender(Part::LayerWithoutFields, |plan| build(plan, RateLimitFields::Disabled)),
    ]
}

fn build(plan: Plan, fields: RateLimitFields) -> Box<dyn Subject> {
    let layer = RateLimitLayer::builder(IpKeyExtractor::new())
        .limit(u64::from(plan.burst))
        .window(plan.window())
        .rate_limit_fields(fields)
        .with_store(MemoryStore::new())
        .build()
        .expect("the configuration is valid");
    Box::new(Layered { service: layer.layer(service()), key: KeySource::PeerIp })
}
