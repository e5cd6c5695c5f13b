//! Callers that wait until they may pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{Algorithm, Key, Limiter, Outcome, Policy, Quota};
use tollgate_tests::{clock, poll_once, store, timed};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_as_long_as_the_denial_says() {
    let time = clock();
    let moving = time.clone();
    let moves = tokio::spawn(async move {
        loop {
            sleep(Duration::from_millis(1)).await;
            moving.advance(Duration::from_millis(1));
        }
    });
    let denials = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&denials);
    let limiter = Limiter::new([Policy::new("a", Quota::per_second(20).burst(1))]).store(store(&time));
    let limiter = limiter.observe(move |decision| {
        if decision.outcome() == Outcome::Denied {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let start = Instant::now();
    for _ in 0..4 {
        let permit = limiter.until_ready(&Key::from("ada"), 1, PATIENCE).await.unwrap();
        assert_eq!(permit.delay(), Duration::ZERO);
    }
    assert!(start.elapsed() >= Duration::from_millis(149), "{:?}", start.elapsed());
    // A timer is at least as late as asked, so it seldom asks twice for one permit.
    assert!((3..=6).contains(&denials.load(Ordering::Relaxed)), "{denials:?}");
    moves.abort();
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_patience_is_refused_at_once() {
    let limiter = Limiter::new([Policy::new("a", Quota::per_minute(1))]).store(store(&clock()));
    let ada = Key::from("ada");
    let _ = limiter.until_ready(&ada, 1, Duration::ZERO).await.unwrap();
    let (refused, waited) = timed(limiter.until_ready(&ada, 1, Duration::from_secs(59))).await;
    assert_eq!(refused.unwrap_err().retry_after(), Some(PATIENCE));
    assert_eq!(waited, Duration::ZERO);
    // A cost that can never pass, and a key that is missing, too.
    let (refused, waited) = timed(limiter.until_ready(&ada, 2, Duration::MAX)).await;
    assert!(refused.unwrap_err().retry_after().is_none() && waited.is_zero());
    let (refused, waited) = timed(limiter.until_ready(&Key::from(""), 1, Duration::MAX)).await;
    assert!(refused.is_err() && waited.is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_gives_each_caller_its_place() {
    let queue = Policy::new("queue", Quota::per_second(1))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(10) });
    let limiter = Limiter::new([queue]).store(store(&clock()));
    let ada = Key::from("ada");
    let start = Instant::now();
    for _ in 0..3 {
        // Its clock stands still, so each is one second behind the one before.
        let permit = limiter.until_ready(&ada, 1, PATIENCE).await.unwrap();
        assert_eq!(permit.delay(), Duration::ZERO);
    }
    assert_eq!(start.elapsed(), Duration::from_secs(1 + 2));
    // A caller that leaves the queue gives back its place.
    poll_once(limiter.until_ready(&ada, 1, PATIENCE)).await;
    let (permit, waited) = timed(limiter.until_ready(&ada, 1, PATIENCE)).await;
    assert!(permit.is_ok());
    assert_eq!(waited, Duration::from_secs(3));
    // A place beyond its patience is no place, now or later.
    let (refused, waited) = timed(limiter.until_ready(&ada, 1, Duration::from_secs(3))).await;
    assert!(refused.is_err() && waited.is_zero());
}

/// While the bucket refills, the queue of the other rule empties: the two waits do not add up.
#[tokio::test(start_paused = true)]
async fn a_wait_for_one_rule_covers_the_queue_of_another() {
    let ms = Duration::from_millis;
    let bucket = Policy::new("bucket", Quota::per_second(2).burst(4));
    let queue = Policy::new("queue", Quota::per_second(10))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: ms(300) });
    let time = clock();
    let limiter = Limiter::new([bucket, queue]).store(store(&time));
    let ada = Key::from("ada");
    for _ in 0..4 {
        let _ = limiter.check(&ada, 1).await.unwrap();
    }
    let refused = limiter.check(&ada, 1).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(ms(500)));
    let moving = tokio::spawn(async move {
        // Just before the caller asks again.
        sleep(ms(499)).await;
        time.advance(ms(500));
    });
    let (too_short, waited) = timed(limiter.until_ready(&ada, 1, ms(499))).await;
    assert!(too_short.is_err() && waited.is_zero());
    let (permit, waited) = timed(limiter.until_ready(&ada, 1, ms(600))).await;
    assert!(permit.is_ok(), "{permit:?}");
    assert_eq!(waited, ms(500));
    moving.await.unwrap();
}

#[tokio::test]
async fn of_many_callers_that_wait_no_more_pass_than_the_limit() {
    let limiter = Limiter::new([Policy::new("a", Quota::per_second(50).burst(5))]);
    let start = Instant::now();
    let callers = (0..40).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            limiter.until_ready(&Key::from("ada"), 1, Duration::from_millis(300)).await.is_ok()
        })
    });
    let mut passed = 0;
    for caller in callers.collect::<Vec<_>>() {
        passed += u128::from(caller.await.unwrap());
    }
    let most = 5 + start.elapsed().as_millis() / 20 + 1;
    assert!((5..=most).contains(&passed), "{passed} of at most {most}");
}
