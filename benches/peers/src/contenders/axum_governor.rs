//! `axum-governor`: GCRA of `governor` and a table of the busiest keys. Always writes its fields.

use std::num::NonZeroU32;

use axum_governor::extractor::PeerIp;
use axum_governor::{GovernorConfigBuilder, GovernorLayer, Quota};
use tower::Layer;

use super::{Contender, Part, service};
use crate::measure::{Layered, Subject};
use crate::scenario::{KeySource, Plan};

pub(super) fn contenders() -> [Contender; 1] {
    [Contender { package: "axum-governor", part: Part::Layer, key: KeySource::PeerIp, build }]
}

fn build(plan: Plan) -> Box<dyn Subject> {
    let seconds = u32::try_from(plan.interval.as_secs()).ok().and_then(NonZeroU32::new);
    let burst = NonZeroU32::new(plan.burst).expect("the burst is not zero");
    // `seconds_per_request(n)` is one request in n seconds.
    let quota = Quota::seconds_per_request(seconds.expect("a whole number of seconds")).burst(burst);
    let config = GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(quota)
        .finish()
        .expect("the configuration is valid");
    Box::new(Layered { service: GovernorLayer::new(config).layer(service()), key: KeySource::PeerIp })
}
