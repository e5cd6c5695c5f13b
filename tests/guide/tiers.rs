//! Plans, and what a caller keeps that changes its plan.

use http::Request;
use tollgate::extract::{extension, global};
use tollgate::{Algorithm, Head, Key, Policy, PolicyExt, Quota, RequestLimiter, Rule};
use tollgate_tests::{clock, store};

// The authentication layer inserts it into the extensions.
#[derive(Clone)]
struct Caller {
    id: u64,
    plan: &'static str,
}

fn by_plan() -> Rule {
    Policy::new("api", Quota::per_minute(60)).by(extension(|caller: &Caller| caller.id)).tiers(
        [("pro", Quota::per_minute(600)), ("enterprise", Quota::per_minute(6_000).burst(500))],
        |head: &Head<'_>, _: &Key| head.extensions().get::<Caller>().map(|caller| caller.plan),
    )
}

#[tokio::test]
async fn a_caller_without_a_known_plan_gets_the_quota_of_the_policy() {
    super::shows("tiers.md", include_str!("tiers.rs"), &["fn by_plan"]);
    let limiter = RequestLimiter::new([by_plan()]);
    for (id, plan, at_once) in [(1, "free", 60), (2, "pro", 600), (3, "enterprise", 500), (4, "misspelt", 60)]
    {
        let request = Request::get("/").extension(Caller { id, plan }).body(()).unwrap();
        let permit = limiter.check(&Head::from(&request)).await.unwrap();
        let (policy, status) = permit.report().get("api").unwrap();
        assert_eq!((policy.capacity(), status.remaining()), (at_once, at_once - 1));
    }
}

#[derive(Clone)]
struct Plan(&'static str);

async fn left_after_the_upgrade(algorithm: Algorithm) -> u64 {
    let rule = Policy::new("api", Quota::per_minute(60))
        .with_algorithm(algorithm)
        .by(global())
        .tiers([("pro", Quota::per_minute(600))], |head: &Head<'_>, _: &Key| {
            head.extensions().get::<Plan>().map(|plan| plan.0)
        });
    let limiter = RequestLimiter::new([rule]).store(store(&clock()));
    let of = |plan| Request::get("/").extension(Plan(plan)).body(()).unwrap();
    for _ in 0..30 {
        let _ = limiter.check(&Head::from(&of("free"))).await.unwrap();
    }
    limiter.look(&Head::from(&of("pro"))).await.unwrap().statuses()[0].remaining()
}

#[tokio::test]
async fn a_window_keeps_units_and_a_bucket_keeps_its_part() {
    assert_eq!(left_after_the_upgrade(Algorithm::FIXED_WINDOW).await, 570, "30 of 600 are used");
    assert_eq!(left_after_the_upgrade(Algorithm::Gcra).await, 300, "half of the bucket is");
}
