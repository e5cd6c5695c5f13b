//! What the layer adds to a ready service. `baseline` is the same loop without the layer; compare
//! each row with it. Allocations are counted too.
//!
//! `cargo bench -p tollgate-benches --bench layer`

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use divan::{AllocProfiler, Bencher};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::runtime::Builder;
use tollgate::exempt::from_networks;
use tollgate::extract::PeerIp;
use tollgate::store::{NeverFails, Store};
use tollgate::usage::top_keys::{MemoryLog, Recording, TopKeys};
use tollgate::{
    Algorithm, Fields, Head, Key, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt,
};
use tollgate_benches::{COLD, HOT, callers, ready_service, request, send};
use tower::Layer;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Denies no request, and no key is idle.
const AMPLE: Quota = Quota::per_hour(1_000_000).burst(1_000_000);
/// Denies every request after the first.
const SCANT: Quota = Quota::per_day(1);

fn layer(quota: Quota, fields: Fields) -> RateLimitLayer {
    // Twice the cold keys, so that no shard evicts.
    let store = MemoryStore::builder().max_keys(2_000_000).build();
    RateLimitLayer::new([Policy::new("api", quota).by(PeerIp::new())]).fields(fields).store(store)
}

fn run<S: Store<Error: NeverFails>>(bencher: Bencher<'_, '_>, layer: &RateLimitLayer<S>, keys: u32) {
    let service = layer.layer(ready_service());
    for n in 0..keys {
        send(&mut service.clone(), request(n));
    }
    thread_local!(static CALLERS: RefCell<Option<Box<dyn Iterator<Item = u32>>>> = const { RefCell::new(None) });
    CALLERS.set(None);
    bencher
        .with_inputs(|| {
            let caller = CALLERS.with_borrow_mut(|order| {
                order.get_or_insert_with(|| Box::new(callers(keys))).next().unwrap_or(0)
            });
            (service.clone(), request(caller))
        })
        .bench_values(|(mut service, request)| black_box(send(&mut service, request)));
}

#[divan::bench(threads = [1, 2])]
fn baseline(bencher: Bencher<'_, '_>) {
    let service = ready_service();
    bencher
        .with_inputs(|| (service.clone(), request(7)))
        .bench_values(|(mut service, request)| black_box(send(&mut service, request)));
}

#[divan::bench(threads = [1, 2], args = [HOT, COLD])]
fn allowed_with_fields(bencher: Bencher<'_, '_>, keys: u32) {
    run(bencher, &layer(AMPLE, Fields::Ietf), keys);
}

#[divan::bench(threads = [1, 2], args = [HOT, COLD])]
fn allowed_without_fields(bencher: Bencher<'_, '_>, keys: u32) {
    run(bencher, &layer(AMPLE, Fields::None), keys);
}

/// Compare with the two rows above: at most 1.15 ×.
#[divan::bench(threads = [1, 2], args = [HOT, COLD])]
fn allowed_with_fields_and_usage(bencher: Bencher<'_, '_>, keys: u32) {
    run_counted(bencher, Fields::Ietf, keys);
}

#[divan::bench(threads = [1, 2], args = [HOT, COLD])]
fn allowed_without_fields_but_with_usage(bencher: Bencher<'_, '_>, keys: u32) {
    run_counted(bencher, Fields::None, keys);
}

fn run_counted(bencher: Bencher<'_, '_>, fields: Fields, keys: u32) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let recorder = TopKeys::new(MemoryLog::new()).record(Recording::default());
    let store = MemoryStore::builder().max_keys(2_000_000).build().count_usage(&recorder);
    run(bencher, &layer(AMPLE, fields).store(store), keys);
}

#[divan::bench(threads = [1, 2], args = [HOT, COLD])]
fn denied_with_fields(bencher: Bencher<'_, '_>, keys: u32) {
    run(bencher, &layer(SCANT, Fields::Ietf), keys);
}

#[divan::bench(threads = [1, 2], args = [HOT, COLD])]
fn denied_without_fields(bencher: Bencher<'_, '_>, keys: u32) {
    run(bencher, &layer(SCANT, Fields::None), keys);
}

/// By the cache of denials, which has seen each key denied once.
#[divan::bench(threads = [1, 2], args = [HOT, COLD])]
fn denied_by_the_cache(bencher: Bencher<'_, '_>, keys: u32) {
    let store = MemoryStore::builder().max_keys(2_000_000).build().deny_cache(2_000_000);
    let layer = layer(SCANT, Fields::Ietf).store(store);
    let service = layer.layer(ready_service());
    (0..keys).for_each(|n| drop(send(&mut service.clone(), request(n))));
    run(bencher, &layer, keys);
}

#[divan::bench(threads = [1, 2])]
fn three_rules_allowed(bencher: Bencher<'_, '_>) {
    let rule = |name| Policy::new(name, AMPLE).by(PeerIp::new());
    run(bencher, &RateLimitLayer::new([rule("a"), rule("b"), rule("c")]), HOT);
}

/// One thread, since all threads add to the same counters. Compare with `off`.
#[divan::bench(args = ["off", "observer", "metrics"], sample_count = 1_000, sample_size = 64)]
fn watched_with_fields(bencher: Bencher<'_, '_>, by: &str) {
    run(bencher, &watched(layer(AMPLE, Fields::Ietf), by), HOT);
}

#[divan::bench(args = ["off", "observer", "metrics"], sample_count = 1_000, sample_size = 64)]
fn watched_without_fields(bencher: Bencher<'_, '_>, by: &str) {
    run(bencher, &watched(layer(AMPLE, Fields::None), by), HOT);
}

fn watched(layer: RateLimitLayer, by: &str) -> RateLimitLayer {
    let recorder = PrometheusBuilder::new().build_recorder();
    match by {
        "observer" => layer.observe(|_| {}),
        "metrics" => metrics::with_local_recorder(&recorder, || layer.metrics()),
        "off" => layer,
        unknown => unreachable!("{unknown}"),
    }
}

/// A constant cost from a closure: the overhead of any cost function.
#[divan::bench]
fn cost_by_closure_allowed(bencher: Bencher<'_, '_>) {
    let rule = Policy::new("api", AMPLE).by(PeerIp::new()).cost(|_: &Head<'_>| 1);
    run(bencher, &RateLimitLayer::new([rule]).fields(Fields::None), HOT);
}

/// Each request is in one of this many tiers. Compare with the row above.
#[divan::bench(args = [2, 10_000])]
fn tiers_allowed(bencher: Bencher<'_, '_>, tiers: usize) {
    let name = |n: usize| format!("tenant-{n}");
    let quotas = (0..tiers).map(|n| (name(n), AMPLE));
    let chosen: Arc<str> = name(tiers / 3).into();
    let rule = Policy::new("api", AMPLE).by(PeerIp::new());
    let rule = rule.tiers(quotas, move |_: &Head<'_>, _: &Key| Some(Arc::clone(&chosen)));
    run(bencher, &RateLimitLayer::new([rule]).fields(Fields::None), HOT);
}

/// No address is on the list.
#[divan::bench]
fn exemption_by_address_allowed(bencher: Bencher<'_, '_>) {
    let listed = from_networks(PeerIp::new(), ["192.0.2.0/24", "2001:db8::/32", "::1"]);
    let rule = Policy::new("api", AMPLE).by(PeerIp::new()).exempt(listed);
    run(bencher, &RateLimitLayer::new([rule]).fields(Fields::None), HOT);
}

#[divan::bench(args = ["gcra", "fixed-window", "sliding-window", "sliding-buckets", "sliding-log"])]
fn each_algorithm_allowed(bencher: Bencher<'_, '_>, name: &str) {
    let algorithm = match name {
        "fixed-window" => Algorithm::FIXED_WINDOW,
        "sliding-window" => Algorithm::SlidingWindow,
        "sliding-buckets" => Algorithm::SLIDING_BUCKETS,
        "sliding-log" => Algorithm::SlidingLog { max_limit: u32::MAX },
        "gcra" => Algorithm::Gcra,
        unknown => unreachable!("{unknown}"),
    };
    let policy = Policy::new("api", Quota::per_minute(u32::MAX.into())).with_algorithm(algorithm);
    run(bencher, &RateLimitLayer::new([policy.by(PeerIp::new())]).fields(Fields::None), HOT);
}
