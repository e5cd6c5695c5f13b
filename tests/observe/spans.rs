//! The fields of the current span.

use tollgate::{Head, Key, Limiter, RateLimitLayer, RequestLimiter};
use tollgate_tests::{Later, Log, Strict, call, clock, per_minute, per_user, request, store};
use tower::Layer;
use tracing::field::Empty;
use tracing::{Instrument, info, info_span};

/// A span as an outer layer makes it.
fn declared() -> tracing::Span {
    info_span!("request", rate_limit.decision = Empty, rate_limit.policy = Empty, rate_limit.source = Empty)
}

/// The line of an event in that span.
async fn line(log: &Log, span: tracing::Span, work: impl Future) -> String {
    async {
        work.await;
        info!("done");
    }
    .instrument(span)
    .await;
    log.lines().pop().expect("a line")
}

#[tokio::test]
async fn a_span_that_declares_the_fields_gets_the_decision() {
    let (log, _guard) = Log::of_thread();
    let rules = || [per_user("many", 100), per_user("few", 1), per_user("some", 50)];
    let at_once = RequestLimiter::new(rules()).store(store(&clock()));
    let later = RateLimitLayer::new(rules()).store(Later::deciding_last(store(&clock())));
    let mut service = later.layer(Strict::default());
    let allowed = r#"rate_limit.decision="allowed" rate_limit.policy="many" rate_limit.source="store""#;
    let denied = r#"rate_limit.decision="denied" rate_limit.policy="few" rate_limit.source="store""#;
    for expected in [allowed, denied] {
        let ada = request("ada");
        let seen = line(&log, declared(), at_once.check(&Head::from(&ada))).await;
        assert!(seen.contains(expected) && !seen.contains("ada"), "{seen}");
        let seen = line(&log, declared(), call(&mut service, request("ada"))).await;
        assert!(seen.contains(expected) && !seen.contains("ada"), "{seen}");
    }
    let in_shadow = [per_user("p", 9), per_user("shadow", 1).cost(|_| 5).shadow()];
    let in_shadow = RequestLimiter::new(in_shadow).store(store(&clock()));
    let ada = request("ada");
    let seen = line(&log, declared(), in_shadow.check(&Head::from(&ada))).await;
    assert!(
        seen.contains(r#"decision="allowed" rate_limit.policy="p""#) && !seen.contains("shadow"),
        "{seen}"
    );
    let exempt = RequestLimiter::new([per_user("p", 1).exempt(|_: &Head<'_>| true)]);
    let ada = request("ada");
    let seen = line(&log, declared(), exempt.check(&Head::from(&ada))).await;
    assert!(!seen.contains("decision"), "{seen}");
}

#[tokio::test]
async fn a_decision_logs_no_event_and_leaves_other_spans_unchanged() {
    let (log, _guard) = Log::of_thread();
    let limiter = Limiter::new([per_minute("p", 1)]).store(store(&clock()));
    let ada = Key::from("ada");
    for _ in 0..2 {
        let seen = line(&log, info_span!("plain"), limiter.check(&ada, 1)).await;
        assert!(seen.contains("plain: ") && !seen.contains("rate_limit"), "{seen}");
    }
    let _ = limiter.check(&ada, 1).await;
    assert_eq!(log.lines().len(), 2, "only those of this test");
}
