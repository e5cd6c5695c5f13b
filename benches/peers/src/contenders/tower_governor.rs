//! `tower_governor`: GCRA of `governor` over a dashmap, with optional `x-ratelimit-*` fields.

use tower::Layer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use super::{Contender, service};
use crate::measure::{Prepared, Subject};
use crate::scenario::{KeySource, Plan};

pub(super) fn contenders() -> [Contender; 2] {
    let contender =
        |fields, build| Contender { package: "tower_governor", fields, key: KeySource::PeerIp, build };
    [contender(true, with_fields), contender(false, without_fields)]
}

fn with_fields(plan: Plan) -> Box<dyn Subject> {
    let config = GovernorConfigBuilder::default()
        .period(plan.interval)
        .burst_size(plan.burst)
        .use_headers()
        .finish()
        .expect("neither period nor burst is zero");
    Prepared::boxed(GovernorLayer::new(config).layer(service()), KeySource::PeerIp)
}

fn without_fields(plan: Plan) -> Box<dyn Subject> {
    let config = GovernorConfigBuilder::default()
        .period(plan.interval)
        .burst_size(plan.burst)
        .finish()
        .expect("neither period nor burst is zero");
    Prepared::boxed(GovernorLayer::new(config).layer(service()), KeySource::PeerIp)
}
