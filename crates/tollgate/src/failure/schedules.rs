//! Every order in which threads reach a circuit breaker.

// The circuit once more, whose `super::sync` is loom's.
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "shared_circuit.rs"]
mod shared_circuit;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};
use std::time::Duration;

use loom::sync::atomic::AtomicU64;
use loom::{sync, thread};
use tollgate_core::{Clock, ErrorKind, ManualClock, StoreError, Timestamp};

use self::shared_circuit::{CircuitView, Role, SharedCircuit};
use super::circuit_state::CircuitState;
use super::settings::CircuitBreaker;
use super::{circuit, circuit_state, event, settings};

/// Longer than the wait for a probe.
const LATER: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Failure;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed")
    }
}

impl std::error::Error for Failure {}

impl StoreError for Failure {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}

/// A request that reached the store, which fails it or not. Dropped, its caller has left.
struct Reached {
    shared: Arc<SharedCircuit>,
    role: Role,
    fails: bool,
}

fn answered(reached: Reached) {
    reached.shared.record(reached.role, reached.fails.then_some(&Failure));
}

/// A circuit that one failure opens, and its clock.
struct SharedBreaker {
    shared: Arc<SharedCircuit>,
    circuit: CircuitView,
    clock: ManualClock,
    /// Probes without a result. Of loom, so that others run meanwhile.
    in_flight: AtomicU64,
}

impl SharedBreaker {
    fn start() -> SharedBreaker {
        let clock = ManualClock::new(Timestamp::from_micros(1_000_000));
        let settings = CircuitBreaker::default().failures_in_a_row(1);
        let shared = Arc::new(SharedCircuit::new(settings.clock(Clock::from(&clock))));
        let circuit = CircuitView::of(Some(Arc::clone(&shared)));
        SharedBreaker { shared, circuit, clock, in_flight: AtomicU64::new(0) }
    }

    /// A request that fails or not, if it reaches the store.
    fn ask(&self, fails: bool) -> Option<Reached> {
        let role = self.shared.admit().ok()?;
        Some(Reached { shared: Arc::clone(&self.shared), role, fails })
    }

    fn pass(&self, fails: bool) -> Reached {
        self.ask(fails).expect("the circuit is closed")
    }

    /// Opens the circuit, and waits until a probe is due.
    fn outage(&self) {
        answered(self.pass(true));
        assert!(self.ask(false).is_none(), "the circuit is open");
        self.clock.advance(LATER);
    }

    /// A probe that fails, if it is the time for one. No other is in flight. Returns whether it
    /// did.
    fn probe(&self, end: impl FnOnce(Reached)) -> bool {
        let probe = self.ask(true);
        let is_due = probe.is_some();
        if let Some(probe) = probe {
            assert_eq!(self.in_flight.fetch_add(1, Ordering::Relaxed), 0, "two probes at a time");
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            end(probe);
        }
        is_due
    }
}

/// Explores the orders of some threads.
fn explore(schedule: impl Fn(&Arc<SharedBreaker>) + Send + Sync + 'static) {
    let schedules = Arc::new(Counter::new(0));
    let counted = Arc::clone(&schedules);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        schedule(&Arc::new(SharedBreaker::start()));
    });
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules > 20, "{schedules} schedules show little");
}

fn spawn<T: 'static>(
    process: &Arc<SharedBreaker>,
    act: impl FnOnce(&SharedBreaker) -> T + 'static,
) -> thread::JoinHandle<T> {
    let process = Arc::clone(process);
    thread::spawn(move || act(&process))
}

fn joined<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().expect("no thread panics")
}

#[test]
fn at_most_one_probe_is_in_flight() {
    explore(|process| {
        process.outage();
        let abandons = spawn(process, |process| process.probe(drop));
        let fails = spawn(process, |process| process.probe(answered));
        let failed = process.probe(answered);
        joined(abandons);
        let failed = joined(fails) || failed;
        assert_eq!(process.circuit.state(), CircuitState::Open);
        // An abandoned probe makes room for the next, a failed one does not.
        assert_eq!(process.ask(true).is_none(), failed);
    });
}

#[test]
fn an_answer_to_an_older_request_does_not_close_the_circuit() {
    explore(|process| {
        let older = [process.pass(false), process.pass(true)];
        process.outage();
        let threads = older.map(|older| spawn(process, |_| answered(older)));
        process.probe(answered);
        threads.into_iter().for_each(joined);
        assert_eq!(process.circuit.state(), CircuitState::Open);
    });
}

#[test]
fn a_failure_of_an_older_request_does_not_open_the_circuit_again() {
    explore(|process| {
        let older = [process.pass(true), process.pass(true)];
        process.outage();
        let probe = process.ask(false).expect("a probe is due");
        let threads = older.map(|older| spawn(process, |_| answered(older)));
        answered(probe);
        assert!(process.ask(false).is_some(), "the close was lost");
        threads.into_iter().for_each(joined);
        assert_eq!(process.circuit.state(), CircuitState::Closed);
        assert!(process.ask(false).is_some(), "the close was lost");
    });
}

#[test]
fn each_failure_of_a_request_after_the_close_counts() {
    explore(|process| {
        process.outage();
        let probe = process.ask(false).expect("a probe is due");
        let passes = |process: &SharedBreaker| process.ask(true).map(answered).is_some();
        let threads = [spawn(process, passes), spawn(process, passes)];
        answered(probe);
        let failed = threads.map(joined).contains(&true);
        let expected = if failed { CircuitState::Open } else { CircuitState::Closed };
        assert_eq!(process.circuit.state(), expected);
        assert_eq!(process.ask(false).is_none(), failed);
    });
}
