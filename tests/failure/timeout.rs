//! No caller waits for a store longer than the timeout.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tokio::time::advance;
use tollgate::SetupError;
use tollgate::failure::GuardError;
use tollgate::store::{Check, ErrorKind, Grant, Reply, Stamp, Store, StoreError, Times, Verdict};
use tollgate::{Key, Policy, Quota, StoreExt};
use tollgate_tests::{Connection, Fault, poll_once, timed};

use crate::failure::{TIMEOUT, failing};

const MS: Duration = Duration::from_millis(1);
const ELAPSED: GuardError<Fault> = GuardError::Elapsed(TIMEOUT);

fn policy() -> Policy {
    Policy::new("p", Quota::per_day(5))
}

/// Asks for one unit.
fn take<S: Store>(store: &S) -> Reply<Result<Verdict, S::Error>, S::Acquire> {
    store.acquire(&[Check::new(&policy(), &Key::global(), 1)], Times::ONCE)
}

/// The units left.
async fn left(store: &impl Store) -> u64 {
    let (policy, key) = (policy(), Key::global());
    let look = store.acquire(&[Check::new(&policy, &key, 1)], Times::LOOK).wait().await;
    look.expect("the store answers").each()[0].remaining()
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_awaited_for_the_timeout() {
    let store = failing(Connection::IsSilent).timeout(TIMEOUT);
    let (policy, key) = (policy(), Key::global());
    let (answer, elapsed) = timed(take(&store).wait()).await;
    assert_eq!((answer, elapsed), (Err(ELAPSED), TIMEOUT));
    let grant = Grant { policy: &policy, key: &key, units: 1, stamp: Stamp::default(), share: None };
    let (answer, elapsed) = timed(store.refund(&[grant])).await;
    assert_eq!((answer, elapsed), (Err(ELAPSED), TIMEOUT));
    let (answer, elapsed) = timed(store.reset(&key, &[&policy])).await;
    assert_eq!((answer, elapsed), (Err(ELAPSED), TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_is_passed_on_at_once() {
    for (takes, in_time) in [(49 * MS, true), (51 * MS, false)] {
        let store = failing(Connection::IsSlow(takes)).timeout(TIMEOUT);
        let (answer, elapsed) = timed(take(&store).wait()).await;
        assert_eq!((answer.is_ok(), elapsed), (in_time, takes.min(TIMEOUT)));
    }
}

/// A request may be held up before its answer is polled, for example in a buffer.
#[tokio::test(start_paused = true)]
async fn time_before_the_first_poll_counts_towards_the_timeout() {
    let store = failing(Connection::IsSilent).timeout(TIMEOUT);
    let reply = take(&store);
    advance(40 * MS).await;
    let (answer, elapsed) = timed(reply.wait()).await;
    assert_eq!((answer, elapsed), (Err(ELAPSED), 10 * MS));
}

/// There is no runtime, so a timer would panic.
#[test]
fn an_immediate_answer_creates_no_timer() {
    let store = failing(Connection::Works);
    let limited = store.clone().timeout(TIMEOUT);
    assert!(matches!(take(&limited), Reply::Now(Ok(verdict)) if verdict.is_granted()));
    store.set(Connection::Fails(Fault::Unreachable));
    assert!(matches!(take(&limited), Reply::Now(Err(GuardError::Store(Fault::Unreachable)))));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_passes_on_the_errors_of_the_store() {
    let store = failing(Connection::Works);
    let limited = store.clone().timeout(TIMEOUT);
    for fault in [Fault::Unreachable, Fault::TooSlow, Fault::WrongPassword] {
        for connection in [Connection::Fails(fault), Connection::FailsLater(fault)] {
            store.set(connection);
            let error = take(&limited).wait().await.unwrap_err();
            assert_eq!(error, GuardError::Store(fault));
            assert_eq!(error.is_transient(), fault.is_transient());
            assert_eq!(error.is_timeout(), fault.is_timeout());
            assert_eq!((error.to_string(), error.source().is_none()), (fault.to_string(), true));
        }
    }
    assert!(ELAPSED.is_transient() && ELAPSED.is_timeout());
    assert_eq!(ELAPSED.to_string(), "no answer within 50ms");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_does_not_undo_a_charge() {
    let store = failing(Connection::IsSlow(80 * MS));
    let limited = store.clone().timeout(TIMEOUT);
    assert_eq!(take(&limited).wait().await, Err(ELAPSED));
    store.set(Connection::Works);
    assert_eq!(left(&limited).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_drops_its_timer_and_the_store_continues() {
    let store = failing(Connection::IsSilent);
    let limited = store.clone().timeout(TIMEOUT);
    poll_once(take(&limited).wait()).await;
    drop(take(&limited));
    store.set(Connection::IsSlow(MS));
    assert_eq!(left(&limited).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_beyond_the_end_of_time_never_fires() {
    let day = Duration::from_secs(86_400);
    let store = failing(Connection::IsSlow(day)).timeout(Duration::MAX);
    let (answer, elapsed) = timed(take(&store).wait()).await;
    assert_eq!((answer.is_ok(), elapsed), (true, day));
}

#[tokio::test(start_paused = true)]
async fn the_shortest_of_several_timeouts_holds() {
    for limits in [[TIMEOUT, 3 * TIMEOUT], [3 * TIMEOUT, TIMEOUT]] {
        let store = failing(Connection::IsSilent).timeout(limits[0]).timeout(limits[1]);
        let (answer, elapsed) = timed(take(&store).wait()).await;
        assert_eq!((answer, elapsed), (Err(ELAPSED), TIMEOUT));
        assert_eq!(store.wait_limit(), Some(TIMEOUT));
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_holds_through_a_wrapper_between_it_and_the_store() {
    let store = failing(Connection::IsSilent).timeout(3 * TIMEOUT).deny_cache(10).timeout(TIMEOUT);
    let (answer, elapsed) = timed(take(&store).wait()).await;
    assert!(answer.is_err_and(|error| error.is_timeout()));
    assert_eq!((elapsed, store.wait_limit()), (TIMEOUT, Some(TIMEOUT)));
}

#[test]
fn a_timeout_of_zero_is_refused_at_construction() {
    let store = failing(Connection::Works);
    assert_eq!(store.clone().try_timeout(Duration::ZERO).unwrap_err(), SetupError::ZeroTimeout);
    assert!(store.try_timeout(Duration::from_nanos(1)).is_ok());
}

#[test]
#[should_panic(expected = "must be longer than zero")]
fn a_timeout_of_zero_panics_with_the_reason() {
    let _ = failing(Connection::Works).timeout(Duration::ZERO);
}

/// An error that says more than its kind does.
#[derive(Debug)]
struct Particular;

impl fmt::Display for Particular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("particular")
    }
}

impl Error for Particular {}

impl StoreError for Particular {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }

    fn is_transient(&self) -> bool {
        false
    }

    fn is_timeout(&self) -> bool {
        true
    }
}

#[test]
fn wrappers_pass_on_whether_an_error_is_transient_or_a_timeout() {
    let failed = GuardError::Store(Particular);
    assert_eq!((failed.is_transient(), failed.is_timeout()), (false, true));
    assert_eq!((ELAPSED.is_transient(), ELAPSED.is_timeout()), (true, true));
    let open = GuardError::<Particular>::Open { retry_in: TIMEOUT };
    assert_eq!((open.is_transient(), open.is_timeout()), (true, false));
}
