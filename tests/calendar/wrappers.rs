//! Leases and the cache of denials end with the window.

use std::time::Duration;

use tollgate::calendar::CalendarWindow;
use tollgate::{Key, Lease, ManualClock, StoreExt, Timestamp, Wait};
use tollgate_tests::{Later, store};

use crate::calendar::acquire;

const LIMIT: u64 = 1_000;

/// A clock two seconds before midnight in Berlin, when 2026-11-25 begins.
fn before_midnight() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_795_561_198_000_000))
}

#[tokio::test]
async fn a_lease_ends_with_the_window_and_takes_nothing_into_the_next() {
    let time = before_midnight();
    let lease = Lease::at_most(100).lasting(Duration::from_secs(10)).clock(&time);
    let leased = Later::deciding_first(store(&time)).leased(lease);
    let (policy, key) = (CalendarWindow::day("Europe/Berlin").policy("daily", LIMIT), Key::from("ada"));
    let mut granted = 0;
    let held = loop {
        granted += u64::from(acquire(&leased, &policy, "ada", 1).await.times());
        tokio::task::yield_now().await;
        if let Some(held) = leased.held(&policy, &key) {
            break held;
        }
        assert!(granted < LIMIT, "nothing is leased");
    };
    assert!(held.units > 0 && held.ends_in <= Duration::from_secs(2), "{held:?}");
    time.advance(Duration::from_secs(2));
    assert_eq!(leased.held(&policy, &key), None);
    let day = acquire(leased.get_ref(), &policy, "ada", LIMIT).await;
    assert!(day.is_granted(), "the new day has its whole quota: {day:?}");
}

#[tokio::test]
async fn a_cached_denial_ends_with_the_window() {
    let time = before_midnight();
    let cached = store(&time).deny_cache(10).clock(&time);
    let policy = CalendarWindow::day("Europe/Berlin").policy("daily", 1);
    assert!(acquire(&cached, &policy, "ada", 1).await.is_granted());
    time.advance(Duration::from_micros(1_999_998));
    for left in [2, 1] {
        let wait = Wait::For(Duration::from_micros(left));
        assert_eq!(acquire(&cached, &policy, "ada", 1).await.wait(), wait);
        time.advance(Duration::from_micros(1));
    }
    assert!(acquire(&cached, &policy, "ada", 1).await.is_granted());
}

/// Units that were fetched for a window are spent in it or never, whatever an edit says of its end.
#[tokio::test]
async fn a_lease_that_outlives_an_edit_lifts_no_limit() {
    let time = before_midnight();
    let lease = Lease::at_most(100).lasting(Duration::from_secs(10)).clock(&time);
    let leased = Later::deciding_first(store(&time)).leased(lease);
    // In New York the day ends five hours later.
    let (berlin, york) = ("Europe/Berlin", "America/New_York");
    let of = |zone| CalendarWindow::day(zone).policy("daily", LIMIT);
    let (before, after, key) = (of(berlin), of(york), Key::from("ada"));
    let mut granted = 0;
    while leased.held(&before, &key).is_none() {
        granted += u64::from(acquire(&leased, &before, "ada", 1).await.times());
        tokio::task::yield_now().await;
        assert!(granted < LIMIT, "nothing is leased");
    }
    // The edit, with units on hand.
    for _ in 0..2 * LIMIT {
        granted += u64::from(acquire(&leased, &after, "ada", 1).await.times());
        tokio::task::yield_now().await;
    }
    assert!(granted <= LIMIT, "{granted} in the running window");
    let wait = acquire(&leased, &after, "ada", 1).await.wait();
    assert_eq!(wait, Wait::For(Duration::from_secs(2)), "the running window ends at midnight in Berlin");
    time.advance(Duration::from_secs(2));
    let mut granted = 0;
    for at in 0..2 * LIMIT {
        let policy = if at % 2 == 0 { &before } else { &after };
        granted += u64::from(acquire(&leased, policy, "ada", 1).await.times());
        tokio::task::yield_now().await;
    }
    assert!(granted <= LIMIT, "{granted} in the next window");
}
