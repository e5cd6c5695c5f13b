//! What the queues do, one step after another.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use tollgate_core::Key;

use super::queues::{WaitQueues, Waiter};

fn is_called(waiter: &Waiter<&'static str>) -> bool {
    let called = pin!(waiter.turn()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert_eq!(called, waiter.has_turn());
    called
}

/// The places of those who have a turn.
fn called(waiters: &[Waiter<&'static str>]) -> Vec<u64> {
    waiters.iter().filter(|waiter| is_called(waiter)).map(|waiter| waiter.place).collect()
}

fn ada(queues: &WaitQueues<&'static str>) -> Waiter<&'static str> {
    queues.join([(0, &Key::from("ada"))])
}

#[test]
fn a_queue_without_refusals_calls_64_at_once() {
    let queues = WaitQueues::new();
    let waiters: Vec<_> = (0..70).map(|_| ada(&queues)).collect();
    assert_eq!(called(&waiters), (0..64).collect::<Vec<_>>());
}

#[test]
fn after_a_refusal_only_the_first_is_called() {
    let queues = WaitQueues::new();
    let mut waiters: Vec<_> = (0..5).map(|_| ada(&queues)).collect();
    // In any order of the answers.
    for refused in [3, 0, 1, 4, 2] {
        waiters[refused].refused("no");
    }
    assert_eq!(called(&waiters), [0]);
    waiters.push(ada(&queues));
    assert_eq!(called(&waiters), [0]);
    // Each that leaves hands its turn to the next. With room for several, one more is called.
    waiters.remove(0).passed(1);
    assert_eq!((called(&waiters), waiters[0].refusal()), (vec![1], Some("no")));
    waiters.remove(0).passed(9);
    assert_eq!((called(&waiters), waiters[0].refusal()), (vec![2, 3], None));
    waiters.remove(0).passed(9);
    assert_eq!(called(&waiters), [3, 4, 5]);
    // The first keeps its turn and its place, the others their places.
    waiters[1].refused("no");
    waiters[0].refused("no");
    assert_eq!(called(&waiters), [3, 5]);
    waiters.remove(0);
    assert_eq!(called(&waiters), [4, 5]);
}

#[test]
fn turns_grow_up_to_the_room_there_is() {
    let queues = WaitQueues::new();
    let mut waiters: Vec<_> = (0..80).map(|_| ada(&queues)).collect();
    waiters.remove(0).passed(64);
    assert_eq!(called(&waiters).len(), 64);
    waiters.remove(0).passed(65);
    assert_eq!(called(&waiters).len(), 65);
    for waiter in &waiters {
        waiter.refused("no");
    }
    for turns in [1, 2, 3, 3, 3] {
        assert_eq!(called(&waiters).len(), turns);
        waiters.remove(0).passed(3);
    }
}

#[test]
fn a_caller_that_leaves_is_never_called() {
    let queues = WaitQueues::new();
    let mut waiters: Vec<_> = (0..6).map(|_| ada(&queues)).collect();
    for waiter in &waiters {
        waiter.refused("no");
    }
    drop(waiters.remove(1));
    drop(waiters.remove(0));
    assert_eq!(called(&waiters), [2], "a turn that was not used goes on");
    drop(waiters.remove(3));
    drop(waiters.remove(0));
    assert_eq!(called(&waiters), [3]);
    drop(waiters.remove(0));
    assert_eq!(called(&waiters), [4]);
}

#[test]
fn a_turn_wakes_its_caller_once() {
    let queues = WaitQueues::new();
    let (first, second) = (ada(&queues), ada(&queues));
    let (wakes, waker) = counted();
    first.refused("no");
    second.refused("no");
    let mut turn = pin!(second.turn());
    assert!(turn.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    drop(first);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(turn.poll(&mut Context::from_waker(&waker)).is_ready());
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Wakes>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counted() -> (Arc<Wakes>, Waker) {
    let wakes = Arc::<Wakes>::default();
    (Arc::clone(&wakes), Waker::from(wakes))
}

#[test]
fn a_queue_ends_with_its_last_caller() {
    let queues = WaitQueues::new();
    assert!(queues.join_others([(0, &Key::from("ada"))]).is_none());
    let (first, second) = (ada(&queues), ada(&queues));
    first.refused("no");
    drop(first);
    assert!(queues.join_others([(0, &Key::from("ada"))]).is_some());
    drop(second);
    assert!(queues.join_others([(0, &Key::from("ada"))]).is_none());
    assert_eq!(queues.len(), 0);
}

#[test]
fn each_set_of_keys_has_a_queue_of_its_own() {
    let queues = WaitQueues::<()>::new();
    let (a, b) = (Key::from("a"), Key::from("b"));
    let sets: [&[(usize, &Key)]; 7] =
        [&[], &[(0, &a)], &[(1, &a)], &[(0, &b)], &[(0, &a), (1, &b)], &[(0, &b), (1, &a)], &[(1, &b)]];
    let join = |set: &&[(usize, &Key)]| queues.join(set.iter().copied());
    let waiters: Vec<_> = sets.iter().map(join).collect();
    assert_eq!(queues.len(), sets.len());
    let again: Vec<_> = sets.iter().map(join).collect();
    assert_eq!(queues.len(), sets.len());
    drop((waiters, again));
}
