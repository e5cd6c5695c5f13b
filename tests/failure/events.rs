//! What observers see: who decided, how the store failed, and the state of a circuit.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::failure::CircuitState;
use tollgate::failure::Event;
use tollgate::store::Source;
use tollgate::store::{BoxStore, ErrorKind};
use tollgate::{CircuitBreaker, Key, Limiter, Share, StoreExt};
use tollgate_tests::{Connection, Fault, clock, per_minute, store};

use crate::failure::{TIMEOUT, failing};

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Event>>>);

impl Heard {
    fn ear(&self) -> impl Fn(Event) + Send + Sync + 'static {
        let heard = self.clone();
        move |event| heard.0.lock().expect("no panic while it is held").push(event)
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().expect("no panic while it is held"))
    }
}

#[tokio::test(start_paused = true)]
async fn each_decision_and_each_failure_is_reported_once_with_its_origin() {
    let ada = Key::from("ada");
    let inner = failing(Connection::Works);
    let heard = Heard::default();
    let timed = || inner.clone().timeout(TIMEOUT);
    let policies: [(BoxStore<_>, Source); 3] = [
        (timed().fail_open().observe(heard.ear()).boxed(), Source::FailurePolicy),
        (timed().fail_closed().observe(heard.ear()).boxed(), Source::FailurePolicy),
        (timed().fall_back_to(store(&clock()), Share::WHOLE).observe(heard.ear()).boxed(), Source::Fallback),
    ];
    for (store, instead) in policies {
        let limiter = Limiter::new([per_minute("p", 100), per_minute("q", 100)]).store(store);
        for (connection, kind) in [
            (Connection::Works, None),
            (Connection::IsSlow(TIMEOUT / 2), None),
            (Connection::Fails(Fault::Unreachable), Some(ErrorKind::Unavailable)),
            (Connection::FailsLater(Fault::Unreachable), Some(ErrorKind::Unavailable)),
            (Connection::Fails(Fault::TooSlow), Some(ErrorKind::Timeout)),
            (Connection::IsSilent, Some(ErrorKind::Timeout)),
            (Connection::FailsLater(Fault::WrongPassword), Some(ErrorKind::Misconfigured)),
        ] {
            inner.set(connection);
            let _ = limiter.check(&ada, 1).await;
            let expected = match kind {
                None => vec![Event::Decided(Source::Store)],
                Some(kind) => vec![Event::Failed(kind), Event::Decided(instead)],
            };
            assert_eq!(heard.take(), expected, "{connection:?}");
            limiter.reset(&ada).await;
            let expected: Vec<_> = kind.map(Event::Failed).into_iter().collect();
            assert_eq!(heard.take(), expected, "a reset decides nothing");
        }
    }
}

#[tokio::test]
async fn only_changes_of_a_circuit_are_reported() {
    let ada = Key::from("ada");
    let (inner, time, heard) = (failing(Connection::Works), clock(), Heard::default());
    let settings = CircuitBreaker::default().failures_in_a_row(2).clock(&time).observe(heard.ear());
    let store = inner.clone().circuit_breaker(settings);
    let limiter = Limiter::new([per_minute("p", 100)]).store(store.fail_open().observe(heard.ear()));
    let ask = async |connection| {
        inner.set(connection);
        let _ = limiter.check(&ada, 1).await;
        heard.take()
    };
    let fails = Connection::FailsLater(Fault::Unreachable);
    let failed = [Event::Failed(ErrorKind::Unavailable), Event::Decided(Source::FailurePolicy)];
    let circuit = |state| vec![Event::Circuit(state)];
    assert_eq!(ask(fails).await, failed);
    assert_eq!(ask(fails).await, [circuit(CircuitState::Open), failed.to_vec()].concat());
    for _ in 0..3 {
        let refused = [Event::Failed(ErrorKind::CircuitOpen), Event::Decided(Source::FailurePolicy)];
        assert_eq!(ask(fails).await, refused);
    }
    time.advance(Duration::from_secs(1));
    let probed = [circuit(CircuitState::HalfOpen), circuit(CircuitState::Open), failed.to_vec()].concat();
    assert_eq!(ask(fails).await, probed);
    time.advance(Duration::from_secs(2));
    let back =
        [circuit(CircuitState::HalfOpen), circuit(CircuitState::Closed), vec![Event::Decided(Source::Store)]];
    assert_eq!(ask(Connection::Works).await, back.concat());
    assert_eq!(ask(Connection::Works).await, [Event::Decided(Source::Store)]);
}
