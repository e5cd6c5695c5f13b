//! The circuit breaker around a store that fails, with a manual clock.

use std::fmt;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::failure::CircuitState;
use tollgate::failure::{CircuitView, GuardError, Guarded};
use tollgate::store::{
    Check, End, ErrorKind, Grant, Reply, Stamp, Store, StoreError, Times, Verdict, renewals,
};
use tollgate::{CircuitBreaker, Key, ManualClock, Policy, Quota, RateLimitLayer, StoreExt};
use tollgate_tests::{
    Connection, Failing, Fault, Strict, call, clock, field, per_user, poll_once, request, timed,
};
use tower::Layer;

use crate::failure::{TIMEOUT, failing};

/// Opens at the third failure in a row, for 1 s to 1.5 s at first.
fn settings() -> CircuitBreaker {
    CircuitBreaker::default().failures_in_a_row(3).probe_after(Duration::from_secs(1), Duration::from_secs(4))
}

/// Longer than the first wait with its random part.
const FIRST_WAIT: Duration = Duration::from_millis(1_500);

struct Bench {
    inner: Failing,
    time: ManualClock,
    store: Guarded<Failing>,
    circuit: CircuitView,
}

fn bench(connection: Connection) -> Bench {
    let (inner, time) = (failing(connection), clock());
    let store = inner.clone().circuit_breaker(settings().clock(&time));
    let circuit = store.circuit();
    Bench { inner, time, store, circuit }
}

fn policy() -> Policy {
    Policy::new("p", Quota::per_minute(1_000))
}

fn acquire<S: Store>(store: &S) -> Reply<Result<Verdict, S::Error>, S::Acquire> {
    store.acquire(&[Check::new(&policy(), &Key::from("ada"), 1)], Times::ONCE)
}

impl Bench {
    async fn ask(&self) -> Result<Verdict, GuardError<Fault>> {
        acquire(&self.store).wait().await
    }

    /// Opened by three failures.
    async fn open(&self, connection: Connection) {
        self.inner.set(connection);
        for _ in 0..3 {
            assert!(self.ask().await.is_err());
        }
        assert_eq!(self.circuit.state(), CircuitState::Open);
    }
}

fn is_open(answer: &Result<Verdict, GuardError<Fault>>) -> bool {
    matches!(answer, Err(GuardError::Open { .. }))
}

const FAULTS: [Connection; 3] = [
    Connection::Fails(Fault::Unreachable),
    Connection::FailsLater(Fault::Unreachable),
    Connection::Fails(Fault::TooSlow),
];

#[tokio::test]
async fn a_failing_store_is_not_asked_until_the_probe_is_due() {
    for fault in FAULTS {
        let bench = bench(Connection::Works);
        bench.open(fault).await;
        let asked = bench.inner.asked();
        for _ in 0..100 {
            assert!(is_open(&bench.ask().await));
        }
        bench.time.advance(Duration::from_millis(999));
        assert!(is_open(&bench.ask().await));
        assert_eq!(bench.inner.asked(), asked, "{fault:?}");

        bench.time.advance(FIRST_WAIT);
        assert_eq!(
            bench.ask().await,
            Err(GuardError::Store(match fault {
                Connection::Fails(fault) | Connection::FailsLater(fault) => fault,
                other => panic!("{other:?}"),
            }))
        );
        assert_eq!((bench.inner.asked(), bench.circuit.state()), (asked + 1, CircuitState::Open));
        assert!(is_open(&bench.ask().await), "the probe has failed");

        bench.inner.set(Connection::Works);
        bench.time.advance(2 * FIRST_WAIT);
        assert!(bench.ask().await.is_ok());
        assert_eq!(bench.circuit.state(), CircuitState::Closed);
        for _ in 0..100 {
            assert!(bench.ask().await.is_ok());
        }
    }
}

#[tokio::test]
async fn an_open_circuit_reports_when_to_retry() {
    let bench = bench(Connection::Works);
    bench.open(FAULTS[0]).await;
    bench.time.advance(Duration::from_millis(400));
    let Err(GuardError::Open { retry_in }) = bench.ask().await else { panic!("open") };
    assert!(
        retry_in >= Duration::from_millis(600) && retry_in <= Duration::from_millis(1_100),
        "{retry_in:?}"
    );
    bench.time.advance(retry_in - Duration::from_micros(1));
    assert!(is_open(&bench.ask().await));
    bench.time.advance(Duration::from_micros(1));
    assert!(!is_open(&bench.ask().await));
}

/// Otherwise an open circuit would hide a wrong password.
#[tokio::test]
async fn a_misconfiguration_never_opens_the_circuit_and_ends_an_outage() {
    for wrong in [Connection::Fails(Fault::WrongPassword), Connection::FailsLater(Fault::WrongPassword)] {
        let bench = bench(wrong);
        for _ in 0..200 {
            assert_eq!(bench.ask().await, Err(GuardError::Store(Fault::WrongPassword)));
        }
        assert_eq!(bench.circuit.state(), CircuitState::Closed);
        bench.open(FAULTS[0]).await;
        bench.inner.set(wrong);
        bench.time.advance(FIRST_WAIT);
        assert_eq!(bench.ask().await, Err(GuardError::Store(Fault::WrongPassword)));
        assert_eq!(bench.circuit.state(), CircuitState::Closed, "it is to be seen");
    }
}

#[tokio::test]
async fn only_one_probe_is_in_flight() {
    let bench = bench(Connection::Works);
    bench.open(FAULTS[0]).await;
    bench.inner.set(Connection::FailsLater(Fault::Unreachable));
    bench.time.advance(FIRST_WAIT);
    let asked = bench.inner.asked();
    let Reply::Later(probe) = acquire(&bench.store) else { panic!("the probe") };
    for _ in 0..10 {
        assert!(is_open(&bench.ask().await));
    }
    assert_eq!((bench.inner.asked(), bench.circuit.state()), (asked + 1, CircuitState::HalfOpen));
    assert!(probe.await.is_err());
    assert_eq!(bench.circuit.state(), CircuitState::Open);
}

/// Dropped before its first poll, and after it. The next request is the probe.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_caller_leaves_is_replaced() {
    let bench = bench(Connection::Works);
    bench.open(FAULTS[0]).await;
    bench.inner.set(Connection::IsSilent);
    bench.time.advance(FIRST_WAIT);
    for is_polled in [false, true, false, true] {
        let Reply::Later(mut probe) = acquire(&bench.store) else { panic!("the probe") };
        if is_polled {
            poll_once(&mut probe).await;
        }
        assert_eq!(bench.circuit.state(), CircuitState::HalfOpen);
        drop(probe);
        assert_eq!(bench.circuit.state(), CircuitState::Open);
    }
    bench.inner.set(Connection::Works);
    assert!(bench.ask().await.is_ok());
}

/// A caller that keeps its future and does not poll it, for example in a queue.
#[tokio::test]
async fn a_probe_that_is_not_polled_is_followed_by_another() {
    let bench = bench(Connection::Works);
    bench.open(FAULTS[0]).await;
    bench.inner.set(Connection::FailsLater(Fault::Unreachable));
    bench.time.advance(FIRST_WAIT);
    let Reply::Later(kept) = acquire(&bench.store) else { panic!("the probe") };
    assert!(is_open(&bench.ask().await));
    bench.time.advance(4 * FIRST_WAIT);
    bench.inner.set(Connection::Works);
    assert!(bench.ask().await.is_ok());
    assert_eq!(bench.circuit.state(), CircuitState::Closed);
    drop(kept);
    assert_eq!(bench.circuit.state(), CircuitState::Closed, "what is heard of it now is of no interest");
}

#[tokio::test]
async fn calls_from_before_the_circuit_opened_do_not_prolong_the_wait() {
    let bench = bench(Connection::FailsLater(Fault::Unreachable));
    let mut late = Vec::new();
    for _ in 0..100 {
        let Reply::Later(answer) = acquire(&bench.store) else { panic!("later") };
        late.push(answer);
    }
    for answer in late.drain(..3) {
        assert!(answer.await.is_err());
    }
    assert_eq!(bench.circuit.state(), CircuitState::Open);
    bench.time.advance(Duration::from_millis(900));
    for answer in late {
        assert!(answer.await.is_err());
    }
    bench.inner.set(Connection::Works);
    bench.time.advance(Duration::from_millis(600));
    assert!(bench.ask().await.is_ok());
}

#[tokio::test]
async fn a_failure_rate_of_half_opens_the_circuit_and_40_percent_does_not() {
    let bench = bench(Connection::Works);
    let alternate = async |good: u32, bad: u32, rounds: u32| {
        for _ in 0..rounds {
            for (times, connection) in [(good, Connection::Works), (bad, FAULTS[0])] {
                bench.inner.set(connection);
                for _ in 0..times {
                    let _ = bench.ask().await;
                }
            }
        }
    };
    alternate(3, 2, 100).await;
    assert_eq!(bench.circuit.state(), CircuitState::Closed, "40 of a hundred");
    alternate(2, 2, 30).await;
    assert_eq!(bench.circuit.state(), CircuitState::Open, "50 of a hundred");
}

#[tokio::test]
async fn failed_refunds_and_resets_never_open_the_circuit() {
    let (policy, key) = (policy(), Key::from("ada"));
    let grant = [Grant { policy: &policy, key: &key, units: 1, stamp: Stamp::default(), share: None }];
    let bench = bench(FAULTS[1]);
    for _ in 0..200 {
        assert!(bench.store.refund(&grant).await.is_err());
        assert!(bench.store.reset(&key, &[&policy]).await.is_err());
    }
    assert_eq!(bench.circuit.state(), CircuitState::Closed);
    // Refunds that succeed do not hide that checks fail.
    for _ in 0..2 {
        assert!(bench.ask().await.is_err());
        bench.inner.set(Connection::Works);
        assert!(bench.store.refund(&grant).await.is_ok());
        bench.inner.set(FAULTS[1]);
    }
    assert!(bench.ask().await.is_err());
    assert_eq!(bench.circuit.state(), CircuitState::Open);
}

#[tokio::test]
async fn an_open_circuit_refuses_refunds_and_resets_until_a_probe_is_due() {
    let (policy, key) = (policy(), Key::from("ada"));
    let grant = [Grant { policy: &policy, key: &key, units: 1, stamp: Stamp::default(), share: None }];
    let bench = bench(Connection::Works);
    bench.open(FAULTS[0]).await;
    bench.inner.set(Connection::Works);
    let asked = bench.inner.asked();
    for _ in 0..2 {
        assert!(matches!(bench.store.refund(&grant).await, Err(GuardError::Open { .. })));
        assert!(matches!(bench.store.reset(&key, &[&policy]).await, Err(GuardError::Open { .. })));
        assert!(bench.store.settle(&grant, 5).await.is_err_and(|error| error.executed_nothing()));
        assert!(renewals(&bench.store, &grant).await.is_err());
        bench.time.advance(FIRST_WAIT / 2);
    }
    assert_eq!((bench.inner.asked(), bench.circuit.state()), (asked, CircuitState::Open));
    // They are no probes, and on a quiet node there is none.
    bench.time.advance(FIRST_WAIT);
    for _ in 0..2 {
        assert!(bench.store.refund(&grant).await.is_ok());
        assert!(bench.store.reset(&key, &[&policy]).await.is_ok());
        assert!(bench.store.settle(&grant, 5).await.is_ok());
        assert!(renewals(&bench.store, &grant).await.is_ok());
        assert_eq!(bench.circuit.state(), CircuitState::Open);
    }
    assert!(bench.ask().await.is_ok());
    assert_eq!(bench.circuit.state(), CircuitState::Closed);
}

/// A store whose requests share calls: every error is the failure of the call with this number.
#[derive(Clone, Debug)]
struct Sharing(Arc<Mutex<CallFailed>>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct CallFailed(ErrorKind, u64);

impl fmt::Display for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} failed", self.1)
    }
}

impl std::error::Error for CallFailed {}

impl StoreError for CallFailed {
    fn kind(&self) -> ErrorKind {
        self.0
    }

    fn call(&self) -> Option<u64> {
        Some(self.1)
    }
}

impl Store for Sharing {
    type Error = CallFailed;
    type Acquire = Ready<Result<Verdict, CallFailed>>;

    fn acquire(&self, _: &[Check<'_>], _: Times) -> Reply<Result<Verdict, CallFailed>, Self::Acquire> {
        Reply::Now(Err(*self.0.lock().expect("no panic while it is held")))
    }

    fn refund(&self, _: &[Grant<'_>]) -> impl End<(), CallFailed> + use<> {
        ready(Ok(()))
    }

    fn reset(&self, _: &Key, _: &[&Policy]) -> impl End<(), CallFailed> + use<> {
        ready(Ok(()))
    }
}

#[tokio::test]
async fn a_late_call_counts_as_one_failure_for_all_its_requests() {
    let call = Arc::new(Mutex::new(CallFailed(ErrorKind::Timeout, 0)));
    let store = Sharing(Arc::clone(&call)).timeout(TIMEOUT).circuit_breaker(settings());
    // Calls overlap, so the failures of two calls alternate.
    for n in 0..256 {
        call.lock().unwrap().1 = n % 2;
        assert!(acquire(&store).wait().await.is_err());
        assert_eq!(store.circuit().state(), CircuitState::Closed, "{n}");
    }
    call.lock().unwrap().1 = 2;
    assert!(acquire(&store).wait().await.is_err());
    assert_eq!(store.circuit().state(), CircuitState::Open, "the third call in a row");
}

#[tokio::test]
async fn an_overloaded_queue_does_not_count_as_a_store_failure() {
    let call = Arc::new(Mutex::new(CallFailed(ErrorKind::Overloaded, 0)));
    let time = clock();
    let store = Sharing(Arc::clone(&call)).circuit_breaker(settings().clock(&time));
    for n in 0..200 {
        call.lock().unwrap().1 = n;
        assert!(acquire(&store).wait().await.is_err());
    }
    assert_eq!(store.circuit().state(), CircuitState::Closed);
    for n in 200..203 {
        *call.lock().unwrap() = CallFailed(ErrorKind::Timeout, n);
        assert!(acquire(&store).wait().await.is_err());
    }
    assert_eq!(store.circuit().state(), CircuitState::Open);
    *call.lock().unwrap() = CallFailed(ErrorKind::Overloaded, 204);
    time.advance(FIRST_WAIT);
    // The probe was never sent: the next request is one.
    for _ in 0..2 {
        assert_eq!(acquire(&store).wait().await, Err(GuardError::Store(*call.lock().unwrap())));
    }
}

#[tokio::test]
async fn clones_share_a_circuit() {
    let bench = bench(Connection::Works);
    let clone = bench.store.clone();
    bench.open(FAULTS[0]).await;
    assert!(matches!(acquire(&clone), Reply::Now(Err(GuardError::Open { .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_after_the_circuit_breaker_counts_as_a_failure() {
    let store = failing(Connection::IsSilent).circuit_breaker(settings()).timeout(TIMEOUT);
    for _ in 0..3 {
        let (answer, elapsed) = timed(acquire(&store).wait()).await;
        assert_eq!((answer, elapsed), (Err(GuardError::Elapsed(TIMEOUT)), TIMEOUT));
    }
    assert_eq!(store.circuit().state(), CircuitState::Open);
    assert!(is_open(&acquire(&store).wait().await));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_times_out_has_failed() {
    let bench = bench(Connection::Works);
    let store = bench.store.clone().timeout(TIMEOUT);
    bench.open(FAULTS[0]).await;
    bench.inner.set(Connection::IsSilent);
    bench.time.advance(FIRST_WAIT);
    assert_eq!(acquire(&store).wait().await, Err(GuardError::Elapsed(TIMEOUT)));
    assert_eq!(bench.circuit.state(), CircuitState::Open);
    assert!(is_open(&bench.ask().await), "it was not abandoned");
}

#[tokio::test]
async fn a_second_circuit_breaker_replaces_the_first() {
    let first = failing(FAULTS[0]).circuit_breaker(settings().failures_in_a_row(1));
    let second = first.clone().circuit_breaker(settings());
    for opens in [false, false, true] {
        assert!(matches!(acquire(&second).wait().await, Err(GuardError::Store(_))));
        assert_eq!(second.circuit().state() == CircuitState::Open, opens);
    }
    assert_eq!(first.circuit().state(), CircuitState::Closed);
}

#[tokio::test]
async fn the_circuit_of_a_store_without_a_breaker_is_closed() {
    let store = failing(FAULTS[0]).timeout(TIMEOUT);
    for _ in 0..200 {
        assert!(acquire(&store).wait().await.is_err());
    }
    assert_eq!(store.circuit().state(), CircuitState::Closed);
}

/// A silent store costs the timeout three times. Then the circuit is open.
#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_silent_store_until_the_circuit_opens() {
    for is_open in [true, false] {
        let inner = failing(Connection::Works);
        let store = inner.clone().timeout(TIMEOUT).circuit_breaker(settings());
        let rules = [per_user("p", 100)];
        let layer = if is_open {
            RateLimitLayer::new(rules).store(tollgate::StoreExt::boxed(store.fail_open()))
        } else {
            RateLimitLayer::new(rules).store(tollgate::StoreExt::boxed(store.fail_closed()))
        };
        let mut service = layer.layer(Strict::default());
        assert_eq!(call(&mut service, request("ada")).await.status(), 200);
        inner.set(Connection::IsSilent);
        for n in 0..10 {
            let (response, elapsed) = timed(call(&mut service, request("ada"))).await;
            assert_eq!(response.status(), if is_open { 200 } else { 503 });
            assert_eq!(field(&response, "ratelimit"), None);
            assert_eq!(elapsed, if n < 3 { TIMEOUT } else { Duration::ZERO });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_callers_send_one_probe() {
    for _ in 0..50 {
        let bench = bench(Connection::Works);
        bench.open(FAULTS[0]).await;
        bench.inner.set(Connection::FailsLater(Fault::Unreachable));
        bench.time.advance(FIRST_WAIT);
        let asked = bench.inner.asked();
        let callers = (0..16).map(|_| {
            let store = bench.store.clone();
            tokio::spawn(async move { acquire(&store).wait().await })
        });
        for caller in callers.collect::<Vec<_>>() {
            assert!(caller.await.unwrap().is_err());
        }
        assert_eq!(bench.inner.asked(), asked + 1);
        assert_eq!(bench.circuit.state(), CircuitState::Open);
    }
}

/// Their calls began before the probe, and the store has answered since.
#[tokio::test]
async fn late_failures_of_a_past_outage_do_not_open_the_circuit() {
    let bench = bench(Connection::FailsLater(Fault::Unreachable));
    let mut late = Vec::new();
    for _ in 0..20 {
        let Reply::Later(answer) = acquire(&bench.store) else { panic!("later") };
        late.push(answer);
    }
    for answer in late.drain(..3) {
        assert!(answer.await.is_err());
    }
    bench.inner.set(Connection::Works);
    bench.time.advance(FIRST_WAIT);
    assert!(bench.ask().await.is_ok());
    for answer in late {
        assert!(answer.await.is_err());
        assert_eq!(bench.circuit.state(), CircuitState::Closed);
    }
}

/// A store answers empty checks without a call.
#[tokio::test]
async fn empty_checks_do_not_change_the_circuit() {
    let (policy, key) = (policy(), Key::from("ada"));
    let nothing = [Grant { policy: &policy, key: &key, units: 0, stamp: Stamp::default(), share: None }];
    let bench = bench(Connection::Works);
    let ask_for_nothing = async || {
        bench.inner.set(Connection::Works);
        assert!(bench.store.acquire(&[], Times::ONCE).wait().await.is_ok());
        assert!(bench.store.refund(&nothing).await.is_ok());
        assert!(bench.store.reset(&key, &[]).await.is_ok());
    };
    for _ in 0..3 {
        bench.inner.set(FAULTS[0]);
        assert!(bench.ask().await.is_err());
        ask_for_nothing().await;
    }
    assert_eq!(bench.circuit.state(), CircuitState::Open);
    bench.time.advance(FIRST_WAIT);
    ask_for_nothing().await;
    assert_eq!(bench.circuit.state(), CircuitState::Open, "that was no probe");
}
