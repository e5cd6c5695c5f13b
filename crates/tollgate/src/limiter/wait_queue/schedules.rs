//! Every order in which threads reach a queue: no turn is held by a caller that sleeps.

// The queues once more, whose `super::sync` is loom's.
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "queue_table.rs"]
mod queue_table;
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "queues.rs"]
mod queues;

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use loom::{sync, thread};
use tokio::time::Instant;
use tollgate_core::Key;

use self::queue_table::LOOK_AGAIN;
use self::queues::{WaitQueues, Waiter};
use super::wake_list;

type Queues = WaitQueues<()>;
type Caller = Waiter<()>;

thread_local! {
    /// The time of a schedule, all of whose threads run on one thread. It stands still unless a
    /// caller moves it.
    static NOW: Cell<Instant> = Cell::new(crate::time::timer_now());
}

/// That of the queues.
fn timer_now() -> Instant {
    NOW.get()
}

fn ada() -> Key {
    Key::from("ada")
}

fn join(queues: &Queues) -> Caller {
    queues.join(queues.arrival(), [(0, &ada())])
}

/// A caller that wants two keys, of which it shares the second.
fn join_two(queues: &Queues, tenant: usize) -> Caller {
    queues.join(queues.arrival(), [(tenant, &ada()), (0, &ada())])
}

/// A refusal by this queue, which lasts so many seconds.
fn by(at: usize, seconds: u64) -> [(usize, Duration, ()); 1] {
    [(at, Duration::from_secs(seconds), ())]
}

/// Lets a thread sleep until it is woken. loom reports threads that sleep for ever as a deadlock.
#[derive(Default)]
struct Sleeper {
    is_woken: loom::sync::Mutex<bool>,
    condvar: loom::sync::Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Sleeper>) {
        *self.is_woken.lock().expect("no thread panics") = true;
        self.condvar.notify_one();
    }
}

/// Sleeps until the caller may ask.
fn sleep_until_turn(caller: &mut Caller) {
    loop {
        let sleeper = Arc::<Sleeper>::default();
        let waker = Waker::from(Arc::clone(&sleeper));
        while pin!(caller.turn()).poll(&mut Context::from_waker(&waker)).is_pending() {
            let mut is_woken = sleeper.is_woken.lock().expect("no thread panics");
            while !*is_woken {
                is_woken = sleeper.condvar.wait(is_woken).expect("no thread panics");
            }
            *is_woken = false;
        }
        if caller.enter() {
            return;
        }
    }
}

/// Looks for the turn of a caller until it may ask, each time after more than the others may be
/// late.
fn look_until_turn(caller: &mut Caller) {
    loop {
        while pin!(caller.turn()).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            NOW.set(NOW.get() + 3 * LOOK_AGAIN);
            thread::yield_now();
        }
        if caller.enter() {
            return;
        }
    }
}

/// A caller that passes in its turn, for which it looks again and again.
fn looks_and_passes(mut caller: Caller) {
    look_until_turn(&mut caller);
    caller.passed(|_| 1);
}

/// A caller that passes in its turn, with room for others.
fn passes(mut caller: Caller, room: usize) {
    sleep_until_turn(&mut caller);
    caller.passed(|_| room);
}

/// A caller that is refused in its turn, and passes in its next.
fn passes_after_a_refusal(mut caller: Caller, at: usize, seconds: u64) {
    sleep_until_turn(&mut caller);
    caller.refused(at, by(at, seconds));
    passes(caller, 2);
}

/// A caller whose patience ends before it has its turn, which it asks for once. Out of turn, it is
/// refused, and leaves.
fn gives_up(mut caller: Caller) {
    let is_called = pin!(caller.turn()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    if !is_called {
        caller.refused(0, by(0, 1));
    }
}

/// Explores the orders of some threads.
fn explore(schedule: impl Fn(&Queues) + Send + Sync + 'static) {
    let schedules = Arc::new(Counter::new(0));
    let counted = Arc::clone(&schedules);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let queues = Queues::new();
        schedule(&queues);
        assert_eq!(queues.len(), 0, "a queue ends with its callers");
    });
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules > 100, "{schedules} schedules show little");
}

/// Callers of one key that were refused: only the first has a turn.
fn refused<const N: usize>(queues: &Queues) -> [Caller; N] {
    let mut callers = [(); N].map(|()| join(queues));
    callers.iter_mut().for_each(|caller| caller.refused(0, by(0, 1)));
    callers
}

fn joined<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

#[test]
fn a_caller_that_joins_takes_no_wake_up_of_another() {
    explore(|queues| {
        let [first, second] = refused(queues);
        let new = queues.clone();
        joined([
            thread::spawn(move || passes(second, 1)),
            thread::spawn(move || passes(join(&new), 1)),
            thread::spawn(move || passes(first, 9)),
        ]);
    });
}

#[test]
fn a_caller_that_leaves_takes_no_turn_with_it() {
    explore(|queues| {
        let [first, second, third] = refused(queues);
        joined([
            thread::spawn(move || gives_up(second)),
            thread::spawn(move || passes(third, 1)),
            thread::spawn(move || drop(first)),
        ]);
    });
}

#[test]
fn a_caller_whose_patience_ends_takes_no_turn_with_it() {
    explore(|queues| {
        let [first, second] = refused(queues);
        let new = queues.clone();
        joined([
            thread::spawn(move || gives_up(first)),
            thread::spawn(move || passes(second, 2)),
            thread::spawn(move || gives_up(join(&new))),
        ]);
    });
}

#[test]
fn refusals_and_passes_wake_each_caller() {
    explore(|queues| {
        let [first, second] = refused(queues);
        let new = queues.clone();
        joined([
            thread::spawn(move || passes_after_a_refusal(first, 0, 1)),
            thread::spawn(move || passes_after_a_refusal(second, 0, 1)),
            thread::spawn(move || passes(join(&new), 2)),
        ]);
    });
}

/// Two tenants that share a quota, which is faster than that of one tenant.
#[test]
fn callers_that_move_between_queues_wake_those_they_leave() {
    explore(|queues| {
        let mut first = join_two(queues, 1);
        first.refused(1, by(1, 1));
        let [second, third] = [2, 2].map(|tenant| join_two(queues, tenant));
        joined([
            thread::spawn(move || passes_after_a_refusal(first, 0, 9)),
            thread::spawn(move || passes_after_a_refusal(second, 1, 1)),
            thread::spawn(move || gives_up(third)),
        ]);
    });
}

#[test]
fn callers_of_two_keys_that_are_refused_by_either_pass() {
    explore(|queues| {
        let [first, second] = [1, 1].map(|tenant| join_two(queues, tenant));
        let new = queues.clone();
        joined([
            thread::spawn(move || passes_after_a_refusal(first, 0, 9)),
            thread::spawn(move || passes_after_a_refusal(second, 1, 1)),
            thread::spawn(move || passes(join(&new), 1)),
        ]);
    });
}

#[test]
fn a_caller_that_is_not_polled_holds_up_no_other() {
    explore(|queues| {
        let [first, second, third] = refused(queues);
        let new = queues.clone();
        joined([
            thread::spawn(move || looks_and_passes(second)),
            thread::spawn(move || passes(third, 1)),
            thread::spawn(move || looks_and_passes(join(&new))),
        ]);
        drop(first);
    });
}

#[test]
fn a_caller_that_comes_back_late_takes_no_turn_with_it() {
    explore(|queues| {
        let [first, second, third] = refused(queues);
        joined([
            thread::spawn(move || passes_after_a_refusal(first, 0, 1)),
            thread::spawn(move || looks_and_passes(second)),
            thread::spawn(move || passes(third, 1)),
        ]);
    });
}
