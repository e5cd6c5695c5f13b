//! tollgate: GCRA over its own table in memory, with the two IETF draft fields or none.

use tollgate::extract::PeerIp;
use tollgate::{Fields, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer};
use tower::Layer;

use super::{Contender, OURS, service};
use crate::measure::{Prepared, Subject};
use crate::scenario::{KeySource, Plan};

pub(crate) fn contenders() -> [Contender; 2] {
    let contender = |fields, build| Contender { package: OURS, fields, key: KeySource::PeerIp, build };
    [contender(true, |plan| build(plan, Fields::Ietf)), contender(false, |plan| build(plan, Fields::None))]
}

fn build(plan: Plan, fields: Fields) -> Box<dyn Subject> {
    let rule = Policy::new("api", Quota::new(plan.burst.into(), plan.window())).by(PeerIp::new());
    // The peers have no cap on keys. This cap exceeds the keys of the comparison, with room for
    // shards that fill unevenly.
    let store = MemoryStore::builder().max_keys(2_000_000).build();
    let layer = RateLimitLayer::new([rule]).store(store).fields(fields);
    Prepared::boxed(layer.layer(service()), KeySource::PeerIp)
}
