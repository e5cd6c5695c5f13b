//! A leaky bucket and calls that have a deadline.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::user;
use tonic::{Code, Request};

use crate::grpc::echo::{asking, text};
use crate::grpc::{client, pushback};

/// The client sends `grpc-timeout`. If a call were delayed beyond it, the client would end it with
/// `Cancelled`.
#[tokio::test]
async fn calls_that_cannot_meet_their_deadline_do_not_hold_up_the_next() {
    let max_wait = Duration::from_secs(60);
    let quota = Quota::new(1, Duration::from_secs(4));
    let policy = Policy::new("q", quota).with_algorithm(Algorithm::LeakyBucket { max_wait });
    let mut client = client(RateLimitLayer::new([policy.by(user())])).await;
    let within_300_ms = || {
        let mut call: Request<_> = asking("ada", text("hello"));
        call.set_timeout(Duration::from_millis(300));
        call
    };
    client.once(within_300_ms()).await.expect("the first passes");
    let start = Instant::now();
    for _ in 0..4 {
        let status = client.once(within_300_ms()).await.expect_err("its turn comes too late");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!((1..=3_700).contains(&pushback(&status)), "{status:?}");
    }
    client.once(asking("ada", text("hello"))).await.expect("the next passes");
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(14), "after {elapsed:?} instead of 4 s");
}
