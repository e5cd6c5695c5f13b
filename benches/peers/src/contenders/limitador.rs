//! `limitador`, the library: fixed windows over moka. It has no layer. A caller describes itself by
//! a map of text, from which an expression of the limit takes the key.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use limitador::RateLimiter;
use limitador::limit::Limit;

use super::{Contender, MAX_KEYS, Part};
use crate::measure::{Primitive, Subject};
use crate::scenario::{KeySource, Plan};

const CLIENT: &str = "client";

pub(super) fn contenders() -> [Contender; 1] {
    [Contender { package: "limitador", part: Part::Primitive, key: KeySource::Argument, build }]
}

fn build(plan: Plan) -> Box<dyn Subject> {
    let variable = CLIENT.try_into().expect("a name is an expression");
    let limiter = RateLimiter::new(MAX_KEYS as u64);
    limiter.add_limit(Limit::new("api", plan.burst.into(), plan.window().as_secs(), [], [variable]));
    let (limiter, namespace) = (Arc::new(limiter), "api".into());
    Box::new(Primitive(move |client: IpAddr| {
        let caller = HashMap::from([(CLIENT.to_owned(), client.to_string())]);
        let checked = limiter.check_rate_limited_and_update(&namespace, &caller.into(), 1);
        !checked.expect("a limiter in memory does not fail").limited
    }))
}
