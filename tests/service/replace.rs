//! Rules that are replaced while services run.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::time::sleep;
use tollgate::calendar::CalendarWindow;
use tollgate::charge::Charges;
use tollgate::layer::{RuleChange, Rules};
use tollgate::store::Renewal;
use tollgate::time::Clock;
use tollgate::{
    Algorithm, Head, Key, Limiter, MemoryStore, MissingKey, Outcome, Policy, PolicyError, PolicyExt, Quota,
    RateLimitLayer, Reason, RequestLimiter, Rule, SetupError, Slot,
};
use tollgate_tests::{
    EVERY_ALGORITHM, Leasing, a_minute, call, clock, field, per_minute, per_user, request, store, user,
};
use tower::{Layer, service_fn};

use crate::service::request_quotas::CountsSupports;

/// How many units a key has left. A look takes none.
async fn left(layer: &RateLimitLayer) -> u64 {
    let limiter: RequestLimiter = layer.limiter();
    let report = limiter.look(&Head::from(&request("ada"))).await.unwrap();
    report.statuses()[0].remaining()
}

async fn ok(_: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
    Ok(Response::new(Body::empty()))
}

#[tokio::test]
async fn services_and_clones_from_before_follow() {
    let api = |limit| a_minute("api", Algorithm::FIXED_WINDOW, limit).by(user());
    let layer = RateLimitLayer::new(api(2)).store(store(&clock()));
    let mut services = [layer.layer(service_fn(ok)), layer.clone().layer(service_fn(ok))];
    services[1] = services[0].clone();
    for service in &mut services {
        assert_eq!(field(&call(service, request("ada")).await, "ratelimit-policy"), Some("\"api\";q=2;w=60"));
    }
    assert_eq!(call(&mut services[0], request("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);

    layer.clone().replace([api(5), per_user("more", 9)]).unwrap();
    assert_eq!((layer.version(), layer.clone().version()), (2, 2));
    for service in &mut services {
        let response = call(service, request("ada")).await;
        assert_eq!(response.status(), StatusCode::OK, "the raise helps a caller that was refused");
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"api\";q=5;w=60, \"more\";q=9;w=60"));
    }
}

#[tokio::test]
async fn a_limiter_follows_its_layer_and_replaces_its_rules() {
    let api = |limit| a_minute("api", Algorithm::FIXED_WINDOW, limit).by(user());
    let layer = RateLimitLayer::new(api(2)).store(store(&clock()));
    let (limiter, mut service) = (layer.limiter(), layer.layer(service_fn(ok)));
    let changed = limiter.clone().observe(|_| {});

    layer.replace(api(5)).unwrap();
    assert_eq!((limiter.version(), limiter.policies()[0].capacity()), (2, 5));
    let changes = limiter.clone().replace(api(9)).unwrap();
    assert_eq!((changes.version(), changes.of("api")), (3, Some(RuleChange::Changed)));
    assert_eq!(layer.version(), 3);
    assert_eq!(
        field(&call(&mut service, request("ada")).await, "ratelimit-policy"),
        Some("\"api\";q=9;w=60")
    );

    assert_eq!((changed.version(), changed.policies()[0].capacity()), (1, 2), "it has rules of its own");
    let left = changed.look(&Head::from(&request("ada"))).await.unwrap().statuses()[0].remaining();
    assert_eq!(left, 1, "on the same state");
    limiter.replace([api(1), api(2)]).unwrap_err();
    assert_eq!(limiter.version(), 3);
}

#[tokio::test]
async fn a_switch_reaches_running_services_and_keeps_later_rules() {
    let api = |limit| a_minute("api", Algorithm::FIXED_WINDOW, limit).by(user());
    let layer = RateLimitLayer::new(api(1)).store(store(&clock()));
    let (limiter, mut service) = (layer.limiter(), layer.clone().layer(service_fn(ok)));
    let mut status = async || call(&mut service, request("ada")).await.status().as_u16();
    assert_eq!([status().await, status().await], [200, 429]);
    layer.set_enabled(false);
    layer.set_enabled(false);
    assert_eq!((layer.is_enabled(), limiter.is_enabled(), layer.version()), (false, false, 2));
    assert_eq!([status().await, status().await], [200, 200]);
    assert!(limiter.check(&Head::from(&request("ada"))).await.is_ok());
    layer.replace(api(2)).unwrap();
    assert_eq!((layer.is_enabled(), status().await), (false, 200));
    limiter.set_enabled(true);
    assert_eq!([status().await, status().await], [200, 429], "one was charged before, and one now");
}

#[tokio::test(start_paused = true)]
async fn a_switch_lets_waiting_callers_pass_and_ends_no_running_slot() {
    let exports = Policy::in_flight("exports", 1).by(user()).wait_at_most(Duration::from_secs(60));
    let layer = RateLimitLayer::new(exports);
    let (send, passed) = noting(&layer);
    for id in ["a", "b", "c"] {
        send(id);
        settled().await;
    }
    assert_eq!(*passed.lock().unwrap(), ["a"]);
    layer.set_enabled(false);
    settled().await;
    assert_eq!(*passed.lock().unwrap(), ["a", "b", "c"]);
    layer.set_enabled(true);
    let left = async || left(&layer).await;
    assert_eq!(left().await, 0, "the first request holds its slot");
}

#[tokio::test]
async fn a_changed_layer_leaves_its_services_alone() {
    let layer = RateLimitLayer::new(per_user("api", 2));
    let mut service = layer.layer(service_fn(ok));
    let changed = layer.clone().expose_report();
    changed.set_enabled(false);
    changed.replace(per_user("api", 3)).unwrap();
    assert_eq!((layer.version(), changed.version()), (1, 3));
    assert_eq!(
        field(&call(&mut service, request("ada")).await, "ratelimit-policy"),
        Some("\"api\";q=2;w=60")
    );
}

#[tokio::test]
async fn no_algorithm_gives_quota_back() {
    for algorithm in EVERY_ALGORITHM {
        let rule = |limit| a_minute("p", algorithm, limit).by(user());
        let layer = RateLimitLayer::new(rule(10)).store(store(&clock()));
        for _ in 0..6 {
            let _ = layer.limiter().check(&Head::from(&request("ada"))).await.unwrap();
        }
        // A bucket keeps its 36 s until it is full: 12 units of 20, 3 of 5, all of 2.
        let is_bucket = matches!(algorithm, Algorithm::Gcra | Algorithm::LeakyBucket { .. });
        let expected = if is_bucket { [8, 2, 0, 4] } else { [14, 0, 0, 4] };
        for (limit, expected) in [20, 5, 2, 10].into_iter().zip(expected) {
            assert_eq!(layer.replace(rule(limit)).unwrap().of("p"), Some(RuleChange::Changed));
            assert_eq!(left(&layer).await, expected, "{algorithm:?} with {limit}");
        }
    }
}

#[tokio::test]
async fn a_burst_that_is_lowered_and_raised_forgives_nothing() {
    let time = clock();
    let rule = |burst| Policy::new("p", Quota::per_minute(10).burst(burst)).by(user());
    let layer = RateLimitLayer::new(rule(10)).store(store(&time));
    for _ in 0..10 {
        let _ = layer.limiter().check(&Head::from(&request("ada"))).await.unwrap();
    }
    layer.replace(rule(1)).unwrap();
    time.advance(Duration::from_secs(6));
    for _ in 0..100 {
        assert!(layer.limiter().check(&Head::from(&request("ada"))).await.is_err());
    }
    layer.replace(rule(10)).unwrap();
    assert_eq!(left(&layer).await, 1);
}

#[tokio::test]
async fn a_layer_without_rules_lets_all_pass_until_it_has_some() {
    let layer = RateLimitLayer::new(Rules::none()).store(store(&clock()));
    let (limiter, mut service) = (layer.limiter(), layer.layer(service_fn(ok)));
    let mut answer = async || {
        let response = call(&mut service, request("ada")).await;
        (response.status().as_u16(), field(&response, "ratelimit-policy").map(str::to_owned))
    };
    assert_eq!(answer().await, (200, None));
    assert!(limiter.check(&Head::from(&request("ada"))).await.is_ok());
    let changes = layer.replace(per_user("api", 1)).unwrap();
    assert_eq!(changes.to_string(), "version 2: \"api\" added");
    assert_eq!([answer().await.0, answer().await.0], [200, 429]);
    let changes = limiter.replace(Rules::none()).unwrap();
    assert_eq!(changes.to_string(), "version 3: \"api\" removed");
    assert_eq!([answer().await, answer().await], [(200, None), (200, None)]);
    layer.replace(per_user("api", 1)).unwrap();
    assert_eq!(answer().await.0, 429, "the key keeps what it has used");
}

#[tokio::test]
async fn an_invalid_set_changes_nothing() {
    let store = CountsSupports { store: MemoryStore::new(), of: "", count: Arc::default(), least: 2 };
    let layer = RateLimitLayer::new(per_user("api", 2)).store(store);
    let empty: [tollgate::Rule; 0] = [];
    assert_eq!(layer.replace(empty).unwrap_err(), SetupError::NoRules);
    let twice = layer.replace([per_user("api", 2), per_user("api", 3)]);
    assert_eq!(twice.unwrap_err(), SetupError::PolicyTwice("api".to_owned()));
    let unsupported = layer.replace([per_user("api", 9), per_user("one", 1)]).unwrap_err();
    let policy = per_minute("one", 1);
    assert_eq!(unsupported, SetupError::Unsupported(policy, PolicyError::Unsupported));
    assert_eq!(layer.version(), 1);
    assert_eq!(layer.limiter().policies()[0].quota(), Quota::per_minute(2));
}

#[test]
fn the_report_says_what_became_of_each_rule() {
    let layer = RateLimitLayer::new(["kept", "raised", "hourly", "logged", "tiered", "gone"].map(|name| {
        let rule = per_user(name, 10);
        if name == "tiered" { rule.tiers([("pro", Quota::per_minute(20))], |_, _| Some("pro")) } else { rule }
    }));
    let changes = layer.replace([
        per_user("kept", 10),
        per_user("raised", 11),
        Policy::new("hourly", Quota::per_hour(10)).by(user()),
        a_minute("logged", Algorithm::SLIDING_LOG, 10).by(user()),
        per_user("tiered", 10).tiers([("pro", Quota::per_minute(30))], |_, _| Some("pro")),
        per_user("new", 1),
    ]);
    let changes = changes.unwrap();
    assert_eq!(
        changes.to_string(),
        "version 2: \"raised\" changed, \"hourly\" starts again, \"logged\" starts again, \"tiered\" changed, \
         \"new\" added, \"gone\" removed"
    );
    assert_eq!(changes.of("kept"), None);
    assert_eq!(changes.iter().count(), 6);
    let same = RateLimitLayer::new(per_user("api", 1)).replace(per_user("api", 1)).unwrap();
    assert_eq!(same.to_string(), "version 2: no rule changed");
}

#[test]
fn the_report_names_rules_of_which_something_else_changed() {
    for next in [
        per_user("api", 1).cost(|_| 2),
        per_user("api", 1).exempt(|head: &Head<'_>| head.uri().path() == "/health"),
        per_user("api", 1).on_missing_key(MissingKey::Skip),
        per_user("api", 1).without_fields(),
    ] {
        let changes = RateLimitLayer::new(per_user("api", 1)).replace(next).unwrap();
        assert_eq!(changes.to_string(), "version 2: \"api\" changed, but for its policies");
    }
}

#[test]
fn replacements_at_once_follow_each_other() {
    let layer = RateLimitLayer::new(per_user("api", 1));
    let (threads, each) = (4, 50);
    let start = Barrier::new(threads);
    let replace = |_| {
        start.wait();
        (0..each).map(|n| layer.replace(per_user("api", n + 1)).unwrap().version()).collect::<Vec<_>>()
    };
    let versions: Vec<u64> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || replace(n))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let expected: BTreeSet<u64> = (2..=1 + threads as u64 * each).collect();
    assert_eq!(versions.len(), expected.len());
    assert_eq!(BTreeSet::from_iter(versions), expected);
    assert_eq!(layer.version(), 1 + threads as u64 * each);
}

#[tokio::test]
async fn requests_that_run_finish_by_their_own_rules() {
    let bytes = |limit| Policy::new("bytes", Quota::per_minute(limit)).by(user()).reserve(|_| 4);
    let layer =
        RateLimitLayer::new([bytes(10), Policy::in_flight("jobs", 1).by(user())]).store(store(&clock()));
    let both = layer.clone();
    let mut service = layer.layer(service_fn(move |request: Request<Body>| {
        let other = Policy::in_flight("others", 1).by(user());
        both.replace([other, bytes(100)]).unwrap();
        async move {
            let charge = request.extensions().get::<Charges>().unwrap().of("bytes").unwrap();
            let settled = charge.settle(1).await;
            assert_eq!((settled.charged, settled.forgiven), (1, 0));
            assert!(!request.extensions().get::<Slot>().unwrap().is_lost());
            ok(request).await
        }
    }));
    let response = call(&mut service, request("ada")).await;
    assert_eq!(field(&response, "ratelimit-policy").unwrap().split(';').next(), Some("\"bytes\""));
    let report = layer.limiter().look(&Head::from(&request("ada"))).await.unwrap();
    assert_eq!(report.get("bytes").unwrap().1.remaining(), 90, "6 s until it is full");

    let jobs = |layer: &RateLimitLayer| {
        layer.replace([Policy::in_flight("jobs", 1).by(user())]).unwrap();
        layer.limiter()
    };
    let held = jobs(&layer).check(&Head::from(&request("ada"))).await;
    assert_eq!(held.unwrap_err().reason(), Reason::QuotaExceeded, "the body of the response holds the slot");
    drop(response);
    assert!(jobs(&layer).check(&Head::from(&request("ada"))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn slots_of_earlier_rules_are_renewed_and_given_back() {
    let of_ttl = |ttl| Policy::in_flight("jobs", 9).with_ttl(Duration::from_secs(ttl)).by(user());
    let leasing = Leasing::new(MemoryStore::new());
    let layer = RateLimitLayer::new(of_ttl(60)).store(leasing.clone());
    let first = layer.limiter().check(&Head::from(&request("ada"))).await.unwrap();
    layer.replace(of_ttl(1)).unwrap();
    let second = layer.limiter().check(&Head::from(&request("ada"))).await.unwrap();
    sleep(Duration::from_secs(300)).await;
    assert!(
        !first.slot().is_lost() && !second.slot().is_lost(),
        "the shorter time to live is renewed in time"
    );

    layer.replace(per_user("api", 1)).unwrap();
    sleep(Duration::from_secs(300)).await;
    assert!(!first.slot().is_lost() && !second.slot().is_lost(), "no rule has slots any more");
    assert!(layer.close(Duration::from_secs(2)).await.is_nothing());
    assert!(first.slot().is_lost() && second.slot().is_lost());
    assert_eq!(leasing.renewals(|renewals| (renewals.answer, renewals.released)), (Renewal::Held, 2));
}

#[tokio::test]
async fn denials_and_observers_are_kept() {
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let layer = RateLimitLayer::new(per_user("api", 1).block_after(3, Duration::from_secs(60)))
        .store(store(&clock()))
        .observe(move |decision| {
            let is_decision = decision.outcome() != Outcome::BlockStarted;
            count.fetch_add(is_decision.into(), Ordering::Relaxed);
        });
    let mut service = layer.layer(service_fn(ok));
    let mut blocked = Vec::new();
    for limit in 1..=5 {
        let _ = call(&mut service, request("ada")).await;
        layer.replace(per_user("api", limit % 2 + 1).block_after(3, Duration::from_secs(60))).unwrap();
        let denial = layer.limiter().look(&Head::from(&request("ada"))).await.unwrap();
        blocked.push(denial.statuses().len() > 1 && denial.statuses()[1].remaining() == 0);
    }
    assert!(blocked.iter().any(|is| *is), "the denials of all versions count: {blocked:?}");
    assert_eq!(seen.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn fields_return_with_a_rule_that_has_some() {
    let layer = RateLimitLayer::new(per_user("api", 5).without_fields()).store(store(&clock()));
    let mut service = layer.layer(service_fn(ok));
    assert_eq!(field(&call(&mut service, request("ada")).await, "ratelimit"), None);
    layer.replace(per_user("api", 5)).unwrap();
    assert_eq!(field(&call(&mut service, request("ada")).await, "ratelimit"), Some("\"api\";r=3;t=24"));
}

#[test]
fn no_request_sees_half_a_set() {
    let rules = |n: u64| [per_user(&format!("a{n}"), 1_000_000), per_user(&format!("b{n}"), 1_000_000)];
    let layer = RateLimitLayer::new(rules(1));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let mut service = layer.layer(service_fn(ok));
                let mut latest = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let response = runtime.block_on(call(&mut service, request("ada")));
                    let policies = field(&response, "ratelimit-policy").unwrap().replace('"', "");
                    let mut names =
                        policies.split(", ").map(|item| item.split(';').next().unwrap().to_owned());
                    let (a, b) = (names.next().unwrap(), names.next().unwrap());
                    assert_eq!(a[1..], b[1..]);
                    let version: u64 = a[1..].parse().unwrap();
                    assert!(version >= latest, "an older set came back");
                    latest = version;
                }
            });
        }
        for n in 2..2_000 {
            layer.replace(rules(n)).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[tokio::test]
async fn a_permit_is_settled_by_the_rules_that_granted_it() {
    let failures = |name: &str, cost| {
        let rule = per_minute(name, 60).by(user()).cost(move |_| cost);
        rule.count_if(|response| response.status() == StatusCode::NOT_FOUND)
    };
    let (ada, seen) = (request("ada"), Arc::<Mutex<Vec<String>>>::default());
    let settled = Arc::clone(&seen);
    let layer = RateLimitLayer::new([failures("a", 1), failures("b", 7), per_user("gone", 60)])
        .store(store(&clock()))
        .observe(move |decision| {
            if decision.outcome() == Outcome::Settled {
                settled.lock().unwrap().push(decision.policy().name().to_owned());
            }
        });
    let check = async || layer.limiter().check(&Head::from(&ada)).await.unwrap();
    let (first, mut second, mut third) = (check().await, check().await, check().await);
    layer.replace([failures("b", 7), failures("a", 1)]).unwrap();

    first.settle_by(&tollgate::charge::ResponseHead::from(&Response::new(())));
    second.charge("b").settle(0).await;
    third.charge("gone").settle(0).await;
    let report = layer.limiter().look(&Head::from(&ada)).await.unwrap();
    let left = ["a", "b"].map(|name| report.get(name).unwrap().1.remaining());
    assert_eq!(left, [58, 53]);
    assert_eq!(*seen.lock().unwrap(), ["a", "b", "b", "gone"], "numbers of other rules would name others");
}

/// Shorter and longer, back and forth, while requests run.
#[tokio::test]
async fn another_time_to_live_lets_no_more_requests_run() {
    let jobs = |ttl| Policy::in_flight("jobs", 1).with_ttl(Duration::from_secs(ttl)).by(user());
    let layer = RateLimitLayer::new(jobs(60)).store(store(&clock()));
    let mut running = Vec::new();
    for ttl in [60, 15, 1, 3_600, 15] {
        let changes = layer.replace(jobs(ttl)).unwrap();
        assert_ne!(changes.of("jobs"), Some(RuleChange::StartsAgain), "{ttl}");
        running.extend(layer.limiter().check(&Head::from(&request("ada"))).await.ok());
    }
    assert_eq!(running.len(), 1);
    running.clear();
    assert!(layer.limiter().check(&Head::from(&request("ada"))).await.is_ok());
}

#[tokio::test]
async fn another_time_of_blocks_frees_no_blocked_key() {
    let time = clock();
    let rule = |seconds| per_user("api", 9).block_after(3, Duration::from_secs(seconds));
    let layer = RateLimitLayer::new(rule(60)).store(store(&time));
    let ada = request("ada");
    let key = per_user("api", 9).key(&Head::from(&ada)).unwrap();
    layer.limiter().block("api", &key).await;
    for seconds in [3_600, 1, 900] {
        assert_eq!(layer.replace(rule(seconds)).unwrap().of("api"), Some(RuleChange::Changed));
        assert_eq!(layer.limiter().blocked("api", &key).await, Some(Duration::from_secs(60)));
    }
    time.advance(Duration::from_secs(60));
    assert_eq!(layer.limiter().blocked("api", &key).await, None, "it ends when it would have");
    layer.limiter().block("api", &key).await;
    assert_eq!(layer.limiter().blocked("api", &key).await, Some(Duration::from_secs(900)));
}

#[test]
fn an_edit_of_a_calendar_says_when_it_takes_effect() {
    let monthly = |zone, anchor, limit| {
        let window = CalendarWindow::month(zone).anchor(anchor);
        window.policy("monthly", limit).by(user())
    };
    let layer = RateLimitLayer::new(monthly("UTC", 1, 10));
    let (before, changes) = (Clock::system().now(), layer.replace(monthly("UTC", 15, 10)).unwrap());
    let Some(RuleChange::NextWindow(from)) = changes.of("monthly") else { panic!("{changes}") };
    let ends = from.saturating_since(before);
    assert!(!ends.is_zero() && ends <= Duration::from_secs(31 * 86_400), "{ends:?}");
    let text = changes.to_string();
    assert!(text.starts_with("version 2: \"monthly\" changed, with other windows from 20"), "{text}");
    assert!(text.ends_with("-01 00:00:00 UTC on"), "{text}");
    let same = layer.replace(monthly("utc", 15, 10)).unwrap();
    assert_eq!(same.of("monthly"), None, "the same boundaries");
    let limit = layer.replace(monthly("UTC", 15, 20)).unwrap();
    assert_eq!(limit.of("monthly"), Some(RuleChange::Changed));
    let text = layer.replace(monthly("UTC", 1, 30)).unwrap().to_string();
    assert!(text.ends_with("-15 00:00:00 UTC on"), "{text}");
    let day = CalendarWindow::day("UTC").policy("monthly", 30).by(user());
    assert_eq!(layer.replace(day).unwrap().of("monthly"), Some(RuleChange::StartsAgain));
}

#[test]
fn a_block_that_changes_is_no_new_quota() {
    let blocked = |seconds| per_user("api", 5).block_after(3, Duration::from_secs(seconds));
    let layer = RateLimitLayer::new(per_user("api", 5));
    for rule in [blocked(60), blocked(120), per_user("api", 5)] {
        assert_eq!(layer.replace(rule).unwrap().of("api"), Some(RuleChange::Changed));
    }
}

/// The users whose requests a service got.
type Noted = Arc<Mutex<Vec<String>>>;

/// A service that notes the users whose requests it gets, and holds their slots for an hour.
fn noting(
    layer: &RateLimitLayer,
) -> (impl Fn(&'static str) -> tokio::task::JoinHandle<StatusCode> + use<>, Noted) {
    let passed = Noted::default();
    let note = Arc::clone(&passed);
    let service = layer.layer(service_fn(move |request: Request<Body>| {
        let note = Arc::clone(&note);
        async move {
            note.lock().unwrap().push(request.headers()["x-id"].to_str().unwrap().to_owned());
            sleep(Duration::from_secs(3_600)).await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        }
    }));
    let send = move |id: &'static str| {
        let mut service = service.clone();
        let mut request = request("ada");
        request.headers_mut().insert("x-id", id.parse().unwrap());
        tokio::spawn(async move { call(&mut service, request).await.status() })
    };
    (send, passed)
}

async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

const NEWCOMERS: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];

#[tokio::test(start_paused = true)]
async fn a_raise_reaches_those_who_wait_for_slots_in_their_order() {
    let exports =
        |limit| Policy::in_flight("exports", limit).by(user()).wait_at_most(Duration::from_secs(60));
    // With another number, another key that finds the same, or a rule more.
    let replacements: [fn(Rule) -> Vec<Rule>; 3] = [
        |rule| vec![rule],
        |rule| vec![per_user("first", 99), rule],
        |rule| vec![rule, per_user("then", 99)],
    ];
    for replacement in replacements {
        let layer = RateLimitLayer::new(exports(1));
        let (send, passed) = noting(&layer);
        for id in ["a", "b", "c", "d", "e", "f"] {
            send(id);
            settled().await;
        }
        assert_eq!(*passed.lock().unwrap(), ["a"]);
        let began = tokio::time::Instant::now();
        layer.replace(replacement(exports(8))).unwrap();
        NEWCOMERS.iter().for_each(|id| drop(send(id)));
        settled().await;
        assert_eq!(passed.lock().unwrap()[..6], ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(passed.lock().unwrap().len(), 8, "two newcomers find room");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_ask_by_other_keys_and_rules_too() {
    let exports =
        |name, limit| Policy::in_flight(name, limit).by(user()).wait_at_most(Duration::from_secs(60));
    for (next, expected) in [
        // Another rule: no request holds its slots.
        (exports("others", 3), vec!["a", "b", "c", "d"]),
        // No slots at all.
        (per_user("rate", 2), vec!["a", "b", "c"]),
    ] {
        let layer = RateLimitLayer::new(exports("exports", 1));
        let (send, passed) = noting(&layer);
        for id in ["a", "b", "c", "d", "e", "f"] {
            send(id);
            settled().await;
        }
        layer.replace(next).unwrap();
        settled().await;
        assert_eq!(*passed.lock().unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_wait_counts_from_its_beginning() {
    let exports =
        |limit, wait| Policy::in_flight("exports", limit).by(user()).wait_at_most(Duration::from_secs(wait));
    let layer = RateLimitLayer::new(exports(1, 60));
    let (send, _) = noting(&layer);
    send("a");
    settled().await;
    let waits = send("b");
    sleep(Duration::from_secs(30)).await;
    let began = tokio::time::Instant::now();
    layer.replace(exports(1, 31)).unwrap();
    assert_eq!(waits.await.unwrap(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_raise_reaches_those_who_wait_in_until_ready() {
    let api = |limit| a_minute("api", Algorithm::FIXED_WINDOW, limit).by(user());
    let time = clock();
    let (passed, observed) = (Arc::<Mutex<Vec<u32>>>::default(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&observed);
    let layer = RateLimitLayer::new(api(1)).store(store(&time)).observe(move |decision| {
        count.fetch_add((decision.outcome() == Outcome::Allowed).into(), Ordering::Relaxed);
    });
    let _ = layer.limiter().check(&Head::from(&request("ada"))).await.unwrap();
    for number in 0..6 {
        let (limiter, passed) = (layer.limiter(), Arc::clone(&passed));
        tokio::spawn(async move {
            let ada = request("ada");
            let waited = limiter.until_ready(&Head::from(&ada), Duration::from_secs(3_600)).await;
            assert_eq!(waited.unwrap().report().iter().next().unwrap().0.capacity(), 5);
            passed.lock().unwrap().push(number);
        });
        settled().await;
    }
    assert!(passed.lock().unwrap().is_empty());
    layer.replace(api(5)).unwrap();
    settled().await;
    assert_eq!(*passed.lock().unwrap(), [0, 1, 2, 3]);
    assert_eq!(observed.load(Ordering::Relaxed), 5, "observers see the first, and these");
}

/// A changed copy of a layer shares its queues, and not its rules.
#[tokio::test(start_paused = true)]
async fn a_replacement_in_another_layer_wakes_no_one_here() {
    let exports =
        |limit| Policy::in_flight("exports", limit).by(user()).wait_at_most(Duration::from_secs(60));
    let layer = RateLimitLayer::new(exports(1));
    let (send, passed) = noting(&layer);
    for id in ["a", "b"] {
        send(id);
        settled().await;
    }
    layer.clone().expose_report().replace(exports(9)).unwrap();
    settled().await;
    assert_eq!(*passed.lock().unwrap(), ["a"]);
}

/// The queue outlives the rules, and remembers what they refused.
#[tokio::test(start_paused = true)]
async fn a_caller_is_not_refused_by_what_earlier_rules_said_in_the_queue() {
    let slow = |limit| Policy::new("slow", Quota::per_day(limit)).with_algorithm(Algorithm::FIXED_WINDOW);
    let fast = || Policy::new("fast", Quota::per_hour(1));
    let limiter = Limiter::new([slow(1), fast()]).store(store(&clock()));
    let (ada, both) = (Key::from("ada"), Key::from("both"));
    drop(limiter.check_each(&[("slow", &ada, 1), ("fast", &both, 1)]).await.unwrap());
    let waits_for_both = tokio::spawn({
        let (limiter, ada, both) = (limiter.clone(), ada.clone(), both.clone());
        async move {
            let asks = [("slow", &ada, 1), ("fast", &both, 1)];
            limiter.until_ready_each(&asks, Duration::from_secs(2 * 86_400)).await.map(drop)
        }
    });
    sleep(Duration::from_millis(1)).await;
    limiter.replace([slow(9), fast()]).unwrap();
    sleep(Duration::from_millis(1)).await;
    // By the new rules there is room, and the first caller waits for the other policy.
    let permit = limiter.until_ready_each(&[("slow", &ada, 1)], Duration::from_secs(1)).await;
    assert!(permit.is_ok(), "{permit:?}");
    waits_for_both.abort();
}
