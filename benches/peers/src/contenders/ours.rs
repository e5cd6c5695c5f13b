//! tollgate: GCRA over its own table in memory. The layer has the two IETF draft fields or none.
//! The primitives are a `Limiter`, whose permit can be refunded, and its store.

use tollgate::extract::PeerIp;
use tollgate::store::{Check, Reply, Store, Times};
use tollgate::{Fields, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer};
use tower::Layer;

use super::{Contender, MAX_KEYS, OURS, Part, service};
use crate::measure::{Layered, Primitive, Subject};
use crate::scenario::{KeySource, Plan};

pub(crate) fn contenders() -> [Contender; 4] {
    let contender = |part, key, build| Contender { package: OURS, part, key, build };
    [
        contender(Part::Layer, KeySource::PeerIp, |plan| layer(plan, Fields::Ietf)),
        contender(Part::LayerWithoutFields, KeySource::PeerIp, |plan| layer(plan, Fields::None)),
        contender(Part::Primitive, KeySource::Argument, limiter),
        contender(Part::Store, KeySource::Argument, store_alone),
    ]
}

fn policy(plan: Plan) -> Policy {
    Policy::new("api", Quota::new(plan.burst.into(), plan.window()))
}

fn store() -> MemoryStore {
    MemoryStore::builder().max_keys(MAX_KEYS).build()
}

fn layer(plan: Plan, fields: Fields) -> Box<dyn Subject> {
    let layer = RateLimitLayer::new([policy(plan).by(PeerIp::new())]).store(store()).fields(fields);
    Box::new(Layered { service: layer.layer(service()), key: KeySource::PeerIp })
}

fn limiter(plan: Plan) -> Box<dyn Subject> {
    let limiter = Limiter::new([policy(plan)]).store(store());
    Box::new(Primitive(move |client| limiter.check_now(&Key::from(client), 1).is_ok()))
}

fn store_alone(plan: Plan) -> Box<dyn Subject> {
    let (store, policy) = (store(), policy(plan));
    Box::new(Primitive(move |client| {
        match store.acquire(&[Check::new(&policy, &Key::from(client), 1)], Times::ONCE) {
            Reply::Now(answer) => answer.is_ok_and(|verdict| verdict.is_granted()),
            Reply::Later(_) => unreachable!("a store in memory answers at once"),
        }
    }))
}
