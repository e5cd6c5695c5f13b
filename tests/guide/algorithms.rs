//! How many requests pass around the end of a window, and how long a leaky bucket delays.

use std::time::Duration;

use tollgate::{Algorithm, Key, Limiter, ManualClock, Policy, Quota, Timestamp};
use tollgate_tests::{clock, store};

async fn pass_in_200_ms(algorithm: Algorithm) -> usize {
    let time = ManualClock::new(Timestamp::from_micros(59_900_000));
    let policy = Policy::new("ten", Quota::per_minute(10)).with_algorithm(algorithm);
    let limiter = Limiter::new([policy]).store(store(&time));
    let mut passed = 0;
    for _ in 0..2 {
        for _ in 0..10 {
            passed += usize::from(limiter.check(&Key::global(), 1).await.is_ok());
        }
        time.advance(Duration::from_millis(200));
    }
    passed
}

#[tokio::test]
async fn only_a_fixed_window_lets_twice_its_limit_pass_around_its_end() {
    assert_eq!(pass_in_200_ms(Algorithm::FIXED_WINDOW_ALIGNED).await, 20);
    for algorithm in
        [Algorithm::Gcra, Algorithm::SlidingWindow, Algorithm::SLIDING_BUCKETS, Algorithm::SLIDING_LOG]
    {
        assert_eq!(pass_in_200_ms(algorithm).await, 10, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_leaky_bucket_delays_three_of_four_requests_and_refuses_the_last() {
    super::shows("algorithms.md", include_str!("algorithms.rs"), &["let even"]);
    let even = Policy::new("even", Quota::per_second(10))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_millis(200) });
    let limiter = Limiter::new([even]).store(store(&clock()));
    for wait in [0, 100, 200] {
        let permit = limiter.check(&Key::global(), 1).await.unwrap();
        assert_eq!(permit.delay(), Duration::from_millis(wait));
    }
    let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
    assert_eq!(denial.retry_after(), Some(Duration::from_millis(100)));
}
