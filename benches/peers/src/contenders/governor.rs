//! `governor`: GCRA over a dashmap, which `tower_governor` wraps. It has no layer.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use governor::{Quota, RateLimiter};

use super::{Contender, Part};
use crate::measure::{Primitive, Subject};
use crate::scenario::{KeySource, Plan};

pub(super) fn contenders() -> [Contender; 1] {
    [Contender { package: "governor", part: Part::Primitive, key: KeySource::Argument, build }]
}

fn build(plan: Plan) -> Box<dyn Subject> {
    let burst = NonZeroU32::new(plan.burst).expect("the burst is not zero");
    let quota = Quota::with_period(plan.interval).expect("the interval is not zero").allow_burst(burst);
    let limiter = Arc::new(RateLimiter::<IpAddr, _, _>::keyed(quota));
    Box::new(Primitive(move |client| limiter.check_key(&client).is_ok()))
}
