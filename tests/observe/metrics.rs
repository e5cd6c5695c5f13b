//! Decisions as metrics, read as Prometheus reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Body;
use http::{Request, Response};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate::metrics::{StoreMetrics, count_errors};
use tollgate::{
    Algorithm, Decision, Key, Limiter, MissingKey, Outcome, Policy, PolicyExt, Quota, RateLimitLayer,
    StoreExt,
};
use tollgate_tests::{
    Connection, Failing, Fault, Later, Strict, call, clock, per_minute, per_user, request, store,
};
use tower::{Layer, service_fn};

/// The series with their values.
type Series = BTreeMap<String, f64>;

/// What a limiter exports after some work with it.
pub(crate) async fn exported<T>(
    make: impl FnOnce() -> T,
    work: impl AsyncFnOnce(&T),
    update: impl FnOnce(&T),
) -> Series {
    let recorder = PrometheusBuilder::new().build_recorder();
    let made = metrics::with_local_recorder(&recorder, make);
    work(&made).await;
    metrics::with_local_recorder(&recorder, || update(&made));
    series(&recorder.handle().render())
}

fn series(text: &str) -> Series {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| line.rsplit_once(' ').expect("a name and a value"));
    parts.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

/// The series that are not 0, without those of latencies.
fn counted(series: &Series) -> Vec<(&str, f64)> {
    let counted = series.iter().filter(|(name, value)| **value != 0.0 && !name.contains("seconds"));
    counted.map(|(name, value)| (name.as_str(), *value)).collect()
}

#[tokio::test]
async fn decisions_and_units_are_counted_by_policy_and_outcome() {
    let limiter =
        || Limiter::new([per_minute("few", 5), per_minute("many", 100)]).store(store(&clock())).metrics();
    let work = async |limiter: &Limiter| {
        for cost in [3, 3, 200] {
            let _ = limiter.check(&Key::from("ada"), cost).await;
        }
        let _ = limiter.check(&Key::from(""), 1).await;
    };
    let series = exported(limiter, work, |_| {}).await;
    let decisions = |policy, outcome, source| {
        format!("tollgate_decisions_total{{policy=\"{policy}\",outcome=\"{outcome}\",source=\"{source}\"}}")
    };
    let units =
        |policy, outcome| format!("tollgate_units_total{{policy=\"{policy}\",outcome=\"{outcome}\"}}");
    let limit = |policy| format!("tollgate_policy_limit{{policy=\"{policy}\"}}");
    let mut expected = vec![
        (decisions("few", "allowed", "store"), 1.0),
        (decisions("few", "denied", "store"), 1.0),
        (decisions("few", "never-possible", "store"), 1.0),
        (decisions("few", "no-key", "rule"), 1.0),
        (decisions("many", "allowed", "store"), 1.0),
        (decisions("many", "not-charged", "store"), 1.0),
        (decisions("many", "never-possible", "store"), 1.0),
        (units("few", "allowed"), 3.0),
        (units("few", "denied"), 3.0),
        (units("few", "never-possible"), 200.0),
        (units("many", "allowed"), 3.0),
        (units("many", "not-charged"), 3.0),
        (units("many", "never-possible"), 200.0),
        (limit("few"), 5.0),
        (limit("many"), 100.0),
    ];
    expected.sort_by(|(a, _), (b, _)| a.cmp(b));
    let expected: Vec<_> = expected.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(counted(&series), expected);
}

/// Panels and alerts of other rules do not count them.
#[tokio::test]
async fn rules_in_shadow_have_outcomes_of_their_own() {
    let layer = || {
        let shadow = per_user("s", 2).on_missing_key(MissingKey::Refuse).cost(|_| 3).shadow();
        RateLimitLayer::new([per_user("p", 9), shadow, per_user("t", 2).shadow()])
            .store(store(&clock()))
            .metrics()
    };
    let before = exported(layer, async |_| {}, |_| {}).await;
    let work = async |layer: &RateLimitLayer| {
        let mut service = layer.layer(Strict::default());
        for _ in 0..5 {
            call(&mut service, request("ada")).await;
        }
    };
    let after = exported(layer, work, |_| {}).await;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let counted: Vec<String> =
        counted(&after).iter().map(|(name, value)| format!("{name} {value}")).collect();
    let expected = [
        r#"tollgate_decisions_total{policy="p",outcome="allowed",source="store"} 5"#,
        r#"tollgate_decisions_total{policy="s",outcome="shadow-denied",source="store"} 5"#,
        r#"tollgate_decisions_total{policy="t",outcome="shadow-allowed",source="store"} 2"#,
        r#"tollgate_decisions_total{policy="t",outcome="shadow-denied",source="store"} 3"#,
        r#"tollgate_policy_limit{policy="p"} 9"#,
        r#"tollgate_policy_limit{policy="s"} 2"#,
        r#"tollgate_policy_limit{policy="t"} 2"#,
        r#"tollgate_units_total{policy="p",outcome="allowed"} 5"#,
        r#"tollgate_units_total{policy="s",outcome="shadow-denied"} 15"#,
        r#"tollgate_units_total{policy="t",outcome="shadow-allowed"} 2"#,
        r#"tollgate_units_total{policy="t",outcome="shadow-denied"} 3"#,
    ];
    assert_eq!(counted, expected);
    let of_shadow = |name: &&String| name.contains("shadow-") && name.contains("policy=\"p\"");
    assert_eq!(after.keys().filter(of_shadow).count(), 0, "an enforced rule has no series of these");
}

/// An alert on a rate needs the 0 before the first 1.
#[tokio::test]
async fn all_series_exist_before_the_first_request_and_none_is_added() {
    let layer = || {
        let wide = Policy::new("p", Quota::per_minute(1_000_000)).by(tollgate_tests::user());
        let store = Later::deciding_last(store(&clock()));
        RateLimitLayer::new([wide, per_user("q", 1)]).store(store).metrics()
    };
    let before = exported(layer, async |_| {}, |_| {}).await;
    let work = async |layer: &RateLimitLayer<Later>| {
        let mut service = layer.layer(Strict::default());
        for n in 0..10_000 {
            let key = format!("invented-{}", n / 2);
            call(&mut service, request(&key)).await;
        }
        call(&mut service, http::Request::new(axum::body::Body::empty())).await;
    };
    let after = exported(layer, work, |_| {}).await;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert!(after.keys().all(|name| !name.contains("invented")));
    assert_eq!(after["tollgate_store_seconds_count"], 10_000.0, "each call once");
    let decisions = after.iter().filter(|(name, _)| name.starts_with("tollgate_decisions"));
    let decisions: f64 = decisions.map(|(_, value)| value).sum();
    assert_eq!(decisions, 20_001.0, "both rules count each request once, and one a request without a key");
}

/// One policy had 28 series. 24 of them were 0, and most could never be anything else.
#[tokio::test]
async fn only_decisions_that_can_happen_have_a_series() {
    let decisions = async |policies: Vec<Policy>| {
        let series = exported(|| Limiter::new(policies).metrics(), async |_| {}, |_| {}).await;
        let of_policy = "tollgate_decisions_total{policy=\"p\",outcome=\"";
        let decisions = series.keys().filter_map(|name| name.strip_prefix(of_policy)).map(|rest| {
            let (outcome, source) = rest.split_once("\",source=\"").unwrap();
            format!("{outcome} by {}", source.trim_end_matches("\"}"))
        });
        decisions.collect::<Vec<_>>()
    };
    let alone = decisions(vec![per_minute("p", 1)]).await;
    let expected = [
        "allowed by failure-policy",
        "allowed by fallback",
        "allowed by lease",
        "allowed by store",
        "denied by deny-cache",
        "denied by failure-policy",
        "denied by fallback",
        "denied by store",
        "never-possible by deny-cache",
        "never-possible by fallback",
        "never-possible by store",
        "no-key by rule",
    ];
    assert_eq!(alone, expected);
    let max_wait = std::time::Duration::from_secs(1);
    let leaky = per_minute("p", 1).with_algorithm(Algorithm::LeakyBucket { max_wait });
    let of_two = decisions(vec![leaky, per_minute("q", 1)]).await;
    let more = of_two.iter().filter(|decision| !alone.contains(decision)).collect::<Vec<_>>();
    let expected = [
        "delayed by fallback",
        "delayed by store",
        "not-charged by deny-cache",
        "not-charged by fallback",
        "not-charged by store",
    ];
    assert_eq!(more, expected);
    assert_eq!(decisions(vec![per_minute("p", 1).reserved()]).await, alone, "an end is no decision");
}

#[tokio::test]
async fn what_was_settled_and_forgiven_is_counted_in_units() {
    let limiter = || Limiter::new([per_minute("p", 100).reserved()]).store(store(&clock())).metrics();
    let work = async |limiter: &Limiter| {
        for total in [4, 500] {
            let mut permit = limiter.check(&Key::from("ada"), 10).await.unwrap();
            permit.charge("p").settle(total).await;
        }
    };
    let series = exported(limiter, work, |_| {}).await;
    let expected = [
        (r#"tollgate_decisions_total{policy="p",outcome="allowed",source="store"}"#, 2.0),
        (r#"tollgate_policy_limit{policy="p"}"#, 100.0),
        (r#"tollgate_units_total{policy="p",outcome="allowed"}"#, 20.0),
        (r#"tollgate_units_total{policy="p",outcome="forgiven"}"#, 304.0),
        (r#"tollgate_units_total{policy="p",outcome="settled"}"#, 200.0),
    ];
    assert_eq!(counted(&series), expected);
}

#[tokio::test]
async fn every_outcome_and_source_has_a_name_of_its_own() {
    let outcomes: Vec<_> = Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
    let sources: Vec<_> = tollgate::store::Source::ALL.iter().map(|source| source.name()).collect();
    for names in [outcomes, sources] {
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}

#[tokio::test]
async fn failures_of_the_store_are_counted_by_kind() {
    let inner = Failing::new(store(&clock()), Connection::Works);
    let make = || {
        let store = inner.clone().fail_open().observe(count_errors());
        Limiter::new([per_minute("p", 1)]).store(store).metrics()
    };
    let work = async |limiter: &Limiter<_>| {
        for fault in [Fault::Unreachable, Fault::Unreachable, Fault::TooSlow, Fault::WrongPassword] {
            inner.set(Connection::Fails(fault));
            let _ = limiter.check(&Key::from("ada"), 1).await;
        }
    };
    let series = exported(make, work, |_| {}).await;
    for (kind, count) in [
        ("unavailable", 2.0),
        ("timeout", 1.0),
        ("misconfigured", 1.0),
        ("overloaded", 0.0),
        ("circuit-open", 0.0),
    ] {
        assert_eq!(series[&format!("tollgate_store_errors_total{{kind=\"{kind}\"}}")], count);
    }
    let by_policy = r#"tollgate_decisions_total{policy="p",outcome="allowed",source="failure-policy"}"#;
    assert_eq!(series[by_policy], 4.0);
}

#[tokio::test]
async fn metrics_and_other_observers_are_added_up() {
    let make = || {
        let own = metrics::counter!("own_total");
        let observe = move |_: &Decision<'_>| own.increment(1);
        Limiter::new([per_minute("p", 9)]).observe(observe).metrics()
    };
    let work = async |limiter: &Limiter| {
        let _ = limiter.check(&Key::from("ada"), 1).await;
    };
    let series = exported(make, work, |_| {}).await;
    let allowed = r#"tollgate_decisions_total{policy="p",outcome="allowed",source="store"}"#;
    assert_eq!((series["own_total"], series[allowed]), (1.0, 1.0));
}

#[tokio::test]
async fn the_slots_that_requests_hold_are_a_gauge() {
    let limiter = || {
        let policies = [Policy::in_flight("exports", 2), Policy::new("rate", Quota::per_day(9))];
        Limiter::new(policies).store(store(&clock())).metrics()
    };
    let work = async |limiter: &Limiter| {
        let key = Key::from("ada");
        let held = limiter.check(&key, 1).await.expect("a slot is free");
        drop(limiter.check(&key, 1).await.expect("a slot is free"));
        let second = limiter.check(&key, 1).await.expect("a slot is free");
        limiter.check(&key, 1).await.expect_err("both slots are held");
        drop(second);
        std::mem::forget(held);
    };
    let series = exported(limiter, work, |_| {}).await;
    let value = |name: &str| series.get(name).copied();
    assert_eq!(value("tollgate_in_flight{policy=\"exports\"}"), Some(1.0));
    assert_eq!(value("tollgate_in_flight{policy=\"rate\"}"), None);
    let units = |outcome: &str| {
        value(&format!("tollgate_units_total{{policy=\"exports\",outcome=\"{outcome}\"}}")).unwrap_or(0.0)
    };
    assert_eq!((units("allowed"), units("released"), units("denied")), (3.0, 2.0, 1.0));
}

#[tokio::test]
async fn metrics_follow_rules_that_are_replaced() {
    let layer = || RateLimitLayer::new([per_user("kept", 5), per_user("gone", 6)]).metrics();
    let recorder = PrometheusBuilder::new().build_recorder();
    let layer = metrics::with_local_recorder(&recorder, layer);
    let mut service =
        layer.layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
    call(&mut service, request("ada")).await;
    // In another order, and with an observer of the same numbers.
    let replace = || layer.replace([per_user("new", 7), per_user("kept", 8)]);
    metrics::with_local_recorder(&recorder, replace).expect("valid rules");
    call(&mut service, request("ada")).await;

    let series = series(&recorder.handle().render());
    let value = |name: &str, policy: &str| series[&format!("{name}{{policy=\"{policy}\"}}")];
    let limits = ["kept", "gone", "new"].map(|policy| value("tollgate_policy_limit", policy));
    assert_eq!(limits, [8.0, 0.0, 7.0]);
    let allowed = ["kept", "gone", "new"]
        .map(|policy| series[&format!("tollgate_units_total{{policy=\"{policy}\",outcome=\"allowed\"}}")]);
    assert_eq!(allowed, [2.0, 1.0, 1.0]);
}

#[test]
fn the_limit_of_a_rule_is_shown_in_shadow_and_outside_of_it() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let layer = RateLimitLayer::new([per_user("other", 9), per_user("api", 1)]).metrics();
        for (limit, in_shadow) in [(2, true), (3, false), (4, true), (5, true), (6, false), (7, false)] {
            let api = per_user("api", limit);
            let api = if in_shadow { api.shadow() } else { api };
            layer.replace([per_user("other", 9), api]).expect("valid rules");
            let limits =
                ["api", "other"].map(|policy| format!("tollgate_policy_limit{{policy=\"{policy}\"}}"));
            let series = series(&recorder.handle().render());
            assert_eq!(limits.map(|limit| series[&limit]), [limit as f64, 9.0], "in shadow: {in_shadow}");
        }
        layer.replace(per_user("other", 9)).expect("a valid rule");
        let series = series(&recorder.handle().render());
        assert_eq!(series["tollgate_policy_limit{policy=\"api\"}"], 0.0);
    });
}

#[tokio::test]
async fn blocks_that_start_are_counted_by_policy() {
    let limiter = || {
        let guesses = per_minute("guesses", 1).block_after(2, std::time::Duration::from_secs(900));
        Limiter::new([guesses, per_minute("rate", 100)]).store(store(&clock())).metrics()
    };
    let blocks = |policy: &str| format!("tollgate_blocks_total{{policy=\"{policy}\"}}");
    let before = exported(limiter, async |_| {}, |_| {}).await;
    assert_eq!((before.get(&blocks("guesses")), before.get(&blocks("rate"))), (Some(&0.0), None));
    assert_eq!(before["tollgate_dropped_blocks_total{policy=\"guesses\"}"], 0.0);
    let work = async |limiter: &Limiter| {
        for name in ["ada", "bob"] {
            for _ in 0..5 {
                let _ = limiter.check(&Key::from(name), 1).await;
            }
        }
    };
    let after = exported(limiter, work, |_| {}).await;
    assert_eq!(after[&blocks("guesses")], 2.0);
    let outcome = |outcome: &str| {
        after[&format!(
            "tollgate_decisions_total{{policy=\"guesses\",outcome=\"{outcome}\",source=\"store\"}}"
        )]
    };
    assert_eq!((outcome("allowed"), outcome("denied"), outcome("blocked")), (2.0, 4.0, 4.0));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
}

#[test]
fn layers_with_one_policy_name_do_not_overwrite_each_other() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let limit = || series(&recorder.handle().render())["tollgate_policy_limit{policy=\"api\"}"];
        let first = RateLimitLayer::new(per_user("api", 100)).metrics();
        let second = RateLimitLayer::new(per_user("api", 20)).metrics();
        assert_eq!(limit(), 100.0, "the largest");
        second.replace(per_user("api", 200)).expect("a valid rule");
        assert_eq!(limit(), 200.0);
        second.replace(per_user("other", 9)).expect("a valid rule");
        assert_eq!(limit(), 100.0, "the first layer has the rule");
        first.replace(per_user("api", 50)).expect("a valid rule");
        let third = Limiter::new([per_minute("api", 70)]).metrics();
        assert_eq!(limit(), 70.0);
        drop(third);
        assert_eq!(limit(), 50.0);
        drop(first);
        assert_eq!(limit(), 0.0);
    });
}

/// Each name that rules ever had left 17 series.
#[tokio::test]
async fn series_of_removed_rules_end_and_those_of_idle_rules_stay() {
    let exporter = ExporterWithIdleTimeout::default();
    let make = || RateLimitLayer::new([per_user("kept", 5), per_user("gone", 6)]).metrics();
    let layer = metrics::with_local_recorder(&exporter, make);
    let scrape = || {
        metrics::with_local_recorder(&exporter, || StoreMetrics::new().update());
        exporter.scrape()
    };
    let before = scrape();
    let replace = || layer.replace([per_user("kept", 5), per_user("new", 7)]);
    metrics::with_local_recorder(&exporter, replace).expect("valid rules");
    let of = |names: &BTreeSet<String>, policy: &str| {
        let of_policy = names.iter().filter(|name| name.contains(&format!("policy = {policy}")));
        of_policy.cloned().collect::<Vec<_>>()
    };
    // Two scrapes, and more if another test has just touched all series.
    let ends = |policy: &str| (0..1_000).map(|_| scrape()).find(|now| of(now, policy).is_empty());
    let after = ends("gone").expect("the series of a removed rule end");
    assert_eq!(of(&after, "kept"), of(&before, "kept"));
    assert!(!of(&before, "gone").is_empty() && !of(&after, "new").is_empty(), "{before:?} {after:?}");
    let mut service =
        layer.layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
    call(&mut service, request("ada")).await;
    assert_eq!(exporter.sum("tollgate_decisions_total", "kept"), 1, "it counts after a pause");
    drop((service, layer));
    assert!(ends("kept").is_some(), "no series of a layer that is gone");
}

/// Ends series that nothing has touched between two scrapes, as exporters do after a time.
#[derive(Default)]
struct ExporterWithIdleTimeout(Mutex<BTreeMap<String, Arc<Touched>>>);

#[derive(Default)]
struct Touched {
    since_scrape: AtomicBool,
    count: AtomicU64,
}

impl ExporterWithIdleTimeout {
    fn series(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Touched>>> {
        self.0.lock().expect("no test panics with the lock")
    }

    fn handle(&self, key: &metrics::Key) -> Arc<Touched> {
        Arc::clone(self.series().entry(key.to_string()).or_default())
    }

    fn scrape(&self) -> BTreeSet<String> {
        let mut all = self.series();
        all.retain(|_, series| series.since_scrape.swap(false, Ordering::Relaxed));
        all.keys().cloned().collect()
    }

    fn sum(&self, name: &str, policy: &str) -> u64 {
        let all = self.series();
        let of =
            all.iter().filter(|(key, _)| key.contains(name) && key.contains(&format!("policy = {policy}")));
        of.map(|(_, series)| series.count.load(Ordering::Relaxed)).sum()
    }
}

impl Recorder for ExporterWithIdleTimeout {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl CounterFn for Touched {
    fn increment(&self, value: u64) {
        self.since_scrape.store(true, Ordering::Relaxed);
        self.count.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, _: u64) {
        self.since_scrape.store(true, Ordering::Relaxed);
    }
}

impl GaugeFn for Touched {
    fn increment(&self, _: f64) {
        self.since_scrape.store(true, Ordering::Relaxed);
    }

    fn decrement(&self, _: f64) {
        self.since_scrape.store(true, Ordering::Relaxed);
    }

    fn set(&self, _: f64) {
        self.since_scrape.store(true, Ordering::Relaxed);
    }
}
