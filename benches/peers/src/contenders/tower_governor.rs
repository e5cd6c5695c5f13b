//! `tower_governor`: GCRA of `governor` over a dashmap, with optional `x-ratelimit-*` fields.

use tower::Layer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use super::{Contender, Part, service};
use crate::measure::{Layered, Subject};
use crate::scenario::{KeySource, Plan};

pub(super) fn contenders() -> [Contender; 2] {
    let contender =
        |part, build| Contender { package: "tower_governor", part, key: KeySource::PeerIp, build };
    [contender(Part::Layer, with_fields), contender(Part::LayerWithoutFields, without_fields)]
}

fn with_fields(plan: Plan) -> Box<dyn Subject> {
    let config = GovernorConfigBuilder::default()
        .period(plan.interval)
        .burst_size(plan.burst)
        .use_headers()
        .finish()
        .expect("neither period nor burst is zero");
    Box::new(Layered { service: GovernorLayer::new(config).layer(service()), key: KeySource::PeerIp })
}

fn without_fields(plan: Plan) -> Box<dyn Subject> {
    let config = GovernorConfigBuilder::default()
        .period(plan.interval)
        .burst_size(plan.burst)
        .finish()
        .expect("neither period nor burst is zero");
    Box::new(Layered { service: GovernorLayer::new(config).layer(service()), key: KeySource::PeerIp })
}
