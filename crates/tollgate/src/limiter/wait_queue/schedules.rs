//! Every order in which threads reach a queue: no turn is held by a caller that sleeps.

// The queues once more, whose `super::sync` is loom's.
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "queues.rs"]
mod queues;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};
use std::task::{Context, Wake, Waker};

use loom::{sync, thread};
use tollgate_core::Key;

use self::queues::{WaitQueues, Waiter};
use super::wake_list;

type Queues = WaitQueues<()>;
type Caller = Waiter<()>;

fn join(queues: &Queues) -> Caller {
    queues.join([(0, &Key::from("ada"))])
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

/// Sleeps until the caller has its turn.
fn sleep_until_turn(caller: &Caller) {
    let sleeper = Arc::<Sleeper>::default();
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut turn = pin!(caller.turn());
    while turn.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        let mut is_woken = sleeper.is_woken.lock().expect("no thread panics");
        while !*is_woken {
            is_woken = sleeper.condvar.wait(is_woken).expect("no thread panics");
        }
        *is_woken = false;
    }
}

/// A caller that passes in its turn, with room for others.
fn passes(caller: Caller, room: usize) {
    sleep_until_turn(&caller);
    caller.passed(room);
}

/// A caller that is refused in its turn, and passes in its next.
fn passes_after_a_refusal(caller: Caller) {
    sleep_until_turn(&caller);
    caller.refused(());
    passes(caller, 2);
}

/// A caller whose patience ends before it has its turn, which it asks for once. Out of turn, it is
/// refused, and leaves.
fn gives_up(caller: Caller) {
    let is_called = pin!(caller.turn()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    if !is_called {
        caller.refused(());
    }
}

/// Explores the orders of some threads, after callers were refused: only the first has a turn.
fn explore<const N: usize>(schedule: impl Fn(&Queues, [Caller; N]) + Send + Sync + 'static) {
    let schedules = Arc::new(Counter::new(0));
    let counted = Arc::clone(&schedules);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let queues = Queues::new();
        let callers = [(); N].map(|()| join(&queues));
        callers.iter().for_each(|caller| caller.refused(()));
        schedule(&queues, callers);
        assert!(queues.join_others([(0, &Key::from("ada"))]).is_none(), "a queue ends with its callers");
    });
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules > 100, "{schedules} schedules show little");
}

fn joined<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

#[test]
fn a_caller_that_joins_takes_no_wake_up_of_another() {
    explore(|queues, [first, second]| {
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
    explore(|_, [first, second, third]| {
        joined([
            thread::spawn(move || gives_up(second)),
            thread::spawn(move || passes(third, 1)),
            thread::spawn(move || drop(first)),
        ]);
    });
}

#[test]
fn a_caller_whose_patience_ends_takes_no_turn_with_it() {
    explore(|queues, [first, second]| {
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
    explore(|queues, [first, second]| {
        let new = queues.clone();
        joined([
            thread::spawn(move || passes_after_a_refusal(first)),
            thread::spawn(move || passes_after_a_refusal(second)),
            thread::spawn(move || passes(join(&new), 2)),
        ]);
    });
}
