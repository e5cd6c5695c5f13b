//! What the queues do, one step after another.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::advance;
use tollgate_core::Key;

use super::LOOK_AGAIN;
use super::queues::{WaitQueues, Waiter};
use crate::time::timer_now;

/// The least time that is longer than another.
const MOMENT: Duration = Duration::from_millis(1);

fn is_called(waiter: &Waiter<&'static str>) -> bool {
    let called = pin!(waiter.turn()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert_eq!(called, waiter.has_turn());
    called
}

/// The places of those who have a turn.
fn called(waiters: &[Waiter<&'static str>]) -> Vec<u64> {
    waiters.iter().filter(|waiter| is_called(waiter)).map(|waiter| waiter.arrival()).collect()
}

fn ada(queues: &WaitQueues<&'static str>) -> Waiter<&'static str> {
    queues.join(queues.arrival(), [(0, &Key::from("ada"))])
}

/// A refusal by the queue of the first key.
fn by_first() -> [(usize, Duration, &'static str); 1] {
    [(0, Duration::ZERO, "no")]
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
        waiters[refused].refused(0, by_first());
    }
    assert_eq!(called(&waiters), [0]);
    waiters.push(ada(&queues));
    assert_eq!(called(&waiters), [0]);
    // Each that leaves hands its turn to the next. With room for several, one more is called.
    waiters.remove(0).passed(|_| 1);
    assert_eq!((called(&waiters), waiters[0].refusal(|_, _| true)), (vec![1], Some("no")));
    waiters.remove(0).passed(|_| 9);
    assert_eq!((called(&waiters), waiters[0].refusal(|_, _| true)), (vec![2, 3], None));
    waiters.remove(0).passed(|_| 9);
    assert_eq!(called(&waiters), [3, 4, 5]);
    // The first keeps its turn and its place, the others their places.
    waiters[1].refused(0, by_first());
    waiters[0].refused(0, by_first());
    assert_eq!(called(&waiters), [3, 5]);
    waiters.remove(0);
    assert_eq!(called(&waiters), [4, 5]);
}

#[test]
fn a_caller_that_asks_takes_one_turn() {
    let queues = WaitQueues::new();
    let mut waiters: Vec<_> = (0..5).map(|_| ada(&queues)).collect();
    for waiter in &mut waiters {
        waiter.refused(0, by_first());
    }
    waiters.remove(0).passed(|_| 9);
    assert!(waiters[0].enter());
    assert!(waiters[1].has_turn() && !waiters[2].has_turn(), "two have a turn");
}

#[test]
fn turns_grow_up_to_the_room_there_is() {
    let queues = WaitQueues::new();
    let mut waiters: Vec<_> = (0..80).map(|_| ada(&queues)).collect();
    waiters.remove(0).passed(|_| 64);
    assert_eq!(called(&waiters).len(), 64);
    waiters.remove(0).passed(|_| 65);
    assert_eq!(called(&waiters).len(), 65);
    for waiter in &mut waiters {
        waiter.refused(0, by_first());
    }
    for turns in [1, 2, 3, 3, 3] {
        assert_eq!(called(&waiters).len(), turns);
        waiters.remove(0).passed(|_| 3);
    }
}

#[test]
fn a_caller_that_leaves_is_never_called() {
    let queues = WaitQueues::new();
    let mut waiters: Vec<_> = (0..6).map(|_| ada(&queues)).collect();
    for waiter in &mut waiters {
        waiter.refused(0, by_first());
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
    let (mut first, mut second) = (ada(&queues), ada(&queues));
    let (wakes, waker) = counted();
    first.refused(0, by_first());
    second.refused(0, by_first());
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
    assert!(queues.join_others(queues.arrival(), [(0, &Key::from("ada"))]).is_none());
    let (mut first, second) = (ada(&queues), ada(&queues));
    first.refused(0, by_first());
    drop(first);
    assert!(queues.join_others(queues.arrival(), [(0, &Key::from("ada"))]).is_some());
    drop(second);
    assert!(queues.join_others(queues.arrival(), [(0, &Key::from("ada"))]).is_none());
    assert_eq!(queues.len(), 0);
}

/// A caller that wants these keys.
fn of(queues: &WaitQueues<&'static str>, keys: &[&str]) -> Waiter<&'static str> {
    let keys: Vec<Key> = keys.iter().map(|key| Key::from(*key)).collect();
    queues.join(queues.arrival(), keys.iter().map(|key| (0, key)))
}

/// A refusal by the queue of this key, which lasts so many seconds.
fn by(at: usize, seconds: u64) -> [(usize, Duration, &'static str); 1] {
    [(at, Duration::from_secs(seconds), "no")]
}

#[test]
fn a_queue_is_of_a_key_and_the_number_of_its_quota() {
    let queues = WaitQueues::<()>::new();
    let (a, b) = (Key::from("a"), Key::from("b"));
    let keys = [(0, &a), (1, &a), (0, &b), (1, &b)];
    let alone = keys.map(|key| queues.join(queues.arrival(), [key]));
    assert_eq!(queues.len(), keys.len());
    let all = queues.join(queues.arrival(), keys);
    assert_eq!(queues.len(), keys.len());
    drop((alone, all));
    assert_eq!(queues.len(), 0);
}

#[test]
fn a_caller_of_two_keys_joins_those_who_want_one_of_them() {
    let queues = WaitQueues::new();
    let [a, b, c] = ["a", "b", "c"].map(Key::from);
    let other = of(&queues, &["a"]);
    assert!(queues.join_others(queues.arrival(), [(0, &a), (0, &b)]).is_some());
    assert!(queues.join_others(queues.arrival(), [(0, &b), (0, &c)]).is_none());
    drop(other);
}

#[test]
fn a_caller_that_waits_in_a_slow_queue_holds_up_no_faster_one() {
    let queues = WaitQueues::new();
    let mut first = of(&queues, &["tenant", "all"]);
    first.refused(1, by(1, 1));
    let mut second = of(&queues, &["all"]);
    assert!(first.has_turn() && !second.has_turn());
    // It is refused by its tenant, for longer. The next of all is called.
    assert!(first.enter());
    first.refused(0, by(0, 60));
    assert!(second.has_turn() && second.enter());
    second.passed(|_| 0);
    assert!(first.enter());
}

#[test]
fn a_caller_keeps_its_turn_in_a_slow_queue_while_it_waits_in_a_faster_one() {
    let queues = WaitQueues::new();
    let mut of_all = of(&queues, &["all"]);
    of_all.refused(0, by(0, 1));
    let mut first = of(&queues, &["tenant", "all"]);
    assert_eq!(first.at(), Some(1), "an older caller has the turn there");
    // Out of turn.
    first.refused(0, by(0, 60));
    let mut second = of(&queues, &["tenant"]);
    assert!(first.has_turn() && !second.has_turn());
    assert!(!first.enter());
    assert_eq!(first.at(), Some(1));
    assert!(!second.enter(), "what the first has waited for is not taken");
    of_all.passed(|_| 0);
    assert!(first.has_turn() && first.enter() && !second.has_turn());
    first.passed(|_| 0);
    assert!(second.has_turn() && second.enter());
}

#[test]
fn a_caller_has_the_place_of_its_arrival_in_each_queue() {
    let queues = WaitQueues::new();
    let mut waiters: Vec<_> = (0..3).map(|_| of(&queues, &["a", "b"])).collect();
    // All are refused by one key, and the first then by the other.
    for waiter in waiters.iter_mut().rev() {
        waiter.refused(0, by(0, 1));
    }
    waiters[0].refused(1, by(1, 2));
    assert_eq!(called(&waiters), [0, 1]);
    assert!(!waiters[1].enter(), "the first is older in the slower queue");
    assert_eq!(called(&waiters), [0, 2]);
    assert!(!waiters[2].enter() && waiters[0].enter());
    waiters.remove(0).passed(|_| 0);
    assert_eq!(called(&waiters), [1]);
    assert!(waiters[0].enter() && !waiters[1].has_turn());
}

#[test]
fn a_caller_whose_store_fails_waits_where_it_holds_up_the_fewest() {
    let queues = WaitQueues::new();
    let mut first = of(&queues, &["all", "tenant"]);
    let mut second = of(&queues, &["all"]);
    first.failed(Duration::from_secs(1), "unavailable");
    assert_eq!((first.at(), first.has_turn()), (Some(1), true));
    assert!(second.enter());
    second.passed(|_| 9);
    drop(first);
    assert_eq!(queues.len(), 0);
}

#[test]
fn a_refusal_by_a_queue_that_others_have_left_leaves_no_queue_behind() {
    let queues = WaitQueues::new();
    let mut other = of(&queues, &["slow"]);
    other.refused(0, by(0, 60));
    // Its answer is on the way already.
    let mut caller = of(&queues, &["slow", "fast"]);
    assert_eq!(caller.at(), Some(0));
    drop(other);
    caller.refused(1, [(0, Duration::from_secs(60), "no"), (1, Duration::from_secs(1), "no")]);
    assert_eq!(caller.at(), Some(1));
    drop(caller);
    assert_eq!(queues.len(), 0);
}

#[test]
fn a_caller_that_wants_other_keys_keeps_its_arrival() {
    let queues = WaitQueues::new();
    let mut first = of(&queues, &["old"]);
    first.refused(0, by(0, 1));
    let second = of(&queues, &["old"]);
    let newcomer = of(&queues, &["new", "both"]);
    let mut slow = of(&queues, &["new"]);
    slow.refused(0, by(0, 1));
    assert!(newcomer.has_turn() && !second.has_turn());
    let (old, new) = (Key::from("old"), Key::from("new"));
    let first = queues.join_from(first, [(0, &new)]);
    assert!(first.has_turn(), "it is older than all who are there");
    assert!(second.has_turn(), "it has left its former queue");
    let second = queues.join_from(second, [(0, &old)]);
    assert!(second.has_turn(), "the same queue");
    let elsewhere = WaitQueues::new();
    assert!(elsewhere.join_from(second, [(0, &old)]).has_turn());
    drop((first, newcomer, slow));
    assert_eq!((queues.len(), elsewhere.len()), (0, 0));
}

/// Callers that were refused, so that only the first has a turn.
fn refused<const N: usize>(queues: &WaitQueues<&'static str>) -> [Waiter<&'static str>; N] {
    let mut callers = [(); N].map(|()| ada(queues));
    callers.iter_mut().for_each(|caller| caller.refused(0, by_first()));
    callers
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_not_polled_in_its_turn_is_passed_by_after_a_second() {
    let queues = WaitQueues::new();
    let [mut first, mut second, third] = refused(&queues);
    advance(LOOK_AGAIN).await;
    assert!(!is_called(&second) && !is_called(&third));
    advance(MOMENT).await;
    assert!(is_called(&second) && second.enter() && !is_called(&third));
    assert!(first.has_turn() && first.enter(), "it comes back, and is the oldest");
    first.refused(0, by_first());
    assert!(is_called(&first), "it keeps its place");
    second.passed(|_| 0);
    assert!(!is_called(&third));
    drop(first);
    assert!(is_called(&third));
}

#[tokio::test(start_paused = true)]
async fn a_caller_keeps_its_turn_while_it_pauses_or_asks() {
    let queues = WaitQueues::new();
    let [first, second] = refused(&queues);
    first.is_busy_until(timer_now() + 5 * LOOK_AGAIN);
    advance(6 * LOOK_AGAIN).await;
    assert!(!is_called(&second));
    assert!(first.has_turn(), "it looks again");
    advance(2 * LOOK_AGAIN).await;
    assert!(!is_called(&second));
    advance(MOMENT).await;
    assert!(is_called(&second));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gets_a_turn_while_it_is_busy_keeps_it_until_it_looks() {
    let queues = WaitQueues::new();
    let [first, second, third] = refused(&queues);
    second.is_busy_until(timer_now() + 3 * LOOK_AGAIN);
    drop(first);
    advance(4 * LOOK_AGAIN).await;
    assert!(!is_called(&third));
    advance(MOMENT).await;
    assert!(is_called(&third), "the second is late");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_look_any_more_gets_no_turn_before_it_does() {
    let queues = WaitQueues::new();
    let [first, mut second, third] = refused(&queues);
    let (wakes, waker) = counted();
    assert!(pin!(second.turn()).poll(&mut Context::from_waker(&waker)).is_pending());
    first.is_busy_until(timer_now() + 9 * LOOK_AGAIN);
    for _ in 0..3 {
        advance(LOOK_AGAIN).await;
        assert!(!is_called(&third));
    }
    drop(first);
    assert!(is_called(&third), "the second did not look for three seconds");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(is_called(&second) && second.enter(), "it comes back, and is older");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_arrives_passes_by_those_that_are_not_polled() {
    let queues = WaitQueues::new();
    let [first, second] = refused(&queues);
    advance(2 * LOOK_AGAIN).await;
    let third = ada(&queues);
    assert_eq!((third.at(), queues.len()), (None, 1));
    drop((first, second, third));
    assert_eq!(queues.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_keeps_its_turns_in_slower_queues() {
    let queues = WaitQueues::new();
    let mut of_all = of(&queues, &["all"]);
    of_all.refused(0, by(0, 1));
    of_all.is_busy_until(timer_now() + 9 * LOOK_AGAIN);
    let mut first = of(&queues, &["tenant", "all"]);
    first.refused(0, by(0, 60));
    assert!(!first.enter() && first.at() == Some(1), "it waits in the faster queue");
    let second = of(&queues, &["tenant"]);
    for _ in 0..3 {
        advance(LOOK_AGAIN).await;
        assert!(!is_called(&first) && !is_called(&second));
    }
}
