//! How a caller in a queue waits for its turn.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::time::{Instant, timeout_at};

use super::wait_queue::{LOOK_AGAIN, Waiter};
use crate::time::timer_now;

/// Waits for the turn of a caller, but only until `end`. Returns whether it has its turn in time.
///
/// The caller looks for its turn each second. So it finds one that it was not woken for, such as by
/// a waker of a foreign runtime, and passes by callers that are not polled any more.
pub(super) async fn turn_before<T>(waiter: &Waiter<T>, end: Instant) -> bool {
    if waiter.has_turn() {
        return true;
    }
    loop {
        let until = end.min(timer_now() + LOOK_AGAIN);
        let found = timeout_at(until, turn(waiter)).await;
        let is_over = timer_now() >= end;
        if let Ok(_found) = found {
            #[cfg(feature = "tracing")]
            if _found == FoundTurn::Unwoken && !is_over {
                tracing::warn!("a caller that waits for its rate limit was not woken for its turn");
            }
            return !is_over;
        }
        if is_over {
            return false;
        }
    }
}

/// How a caller found its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundTurn {
    Woken,
    Unwoken,
}

/// Waits for the turn of a caller, and notes whether it was woken for it.
async fn turn<T>(waiter: &Waiter<T>) -> FoundTurn {
    let mut latest: Option<Arc<NotedWaker>> = None;
    poll_fn(|cx| {
        let noted = Arc::new(NotedWaker { is_called: AtomicBool::new(false), task: cx.waker().clone() });
        let waker = Waker::from(Arc::clone(&noted));
        let poll = pin!(waiter.turn()).poll(&mut Context::from_waker(&waker));
        let before = latest.replace(noted);
        let is_woken = before.is_none_or(|before| before.is_called.load(Ordering::Relaxed));
        poll.map(|()| if is_woken { FoundTurn::Woken } else { FoundTurn::Unwoken })
    })
    .await
}

/// The waker of a task, and whether it was called.
struct NotedWaker {
    is_called: AtomicBool,
    task: Waker,
}

impl Wake for NotedWaker {
    fn wake(self: Arc<NotedWaker>) {
        self.is_called.store(true, Ordering::Relaxed);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;
    use tollgate_core::Key;

    use super::super::wait_queue::WaitQueues;
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Two callers, of which the first has the only turn.
    fn two() -> [Arc<Waiter<()>>; 2] {
        let queues = WaitQueues::new();
        [(); 2].map(|()| {
            let mut waiter = queues.join(queues.arrival(), [(0, &Key::from("ada"))]);
            waiter.refused(0, [(0, Duration::ZERO, ())]);
            Arc::new(waiter)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_finds_a_turn_that_it_was_not_woken_for_within_a_second() {
        let [first, second] = two();
        let waiting = tokio::spawn({
            let (second, end) = (Arc::clone(&second), timer_now() + MINUTE);
            async move { (turn_before(&second, end).await, timer_now()) }
        });
        sleep(Duration::from_millis(300)).await;
        // The waker of the caller is replaced by one that wakes no task.
        assert!(pin!(second.turn()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let passed = timer_now();
        drop(first);
        let (in_time, found) = waiting.await.unwrap();
        assert!(in_time);
        assert_eq!(found - passed, Duration::from_millis(700));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_notes_whether_it_was_woken_for_its_turn() {
        for is_woken in [true, false] {
            let [first, second] = two();
            let waiting = tokio::spawn({
                let second = Arc::clone(&second);
                async move { timeout_at(timer_now() + LOOK_AGAIN, turn(&second)).await }
            });
            sleep(Duration::from_millis(300)).await;
            if !is_woken {
                let _ = pin!(second.turn()).poll(&mut Context::from_waker(Waker::noop()));
            }
            drop(first);
            let found = if is_woken { FoundTurn::Woken } else { FoundTurn::Unwoken };
            assert_eq!(waiting.await.unwrap(), Ok(found));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_has_its_turn_at_once_or_until_its_patience_ends() {
        let [first, second] = two();
        let begin = timer_now();
        assert!(turn_before(&first, begin).await);
        for patience in [Duration::ZERO, Duration::from_millis(2_500)] {
            let since = timer_now();
            assert!(!turn_before(&second, since + patience).await);
            assert_eq!(timer_now() - since, patience);
        }
        let waiting = tokio::spawn(async move { turn_before(&second, begin + MINUTE).await });
        sleep(Duration::from_secs(5)).await;
        let passed = timer_now();
        drop(first);
        assert!(waiting.await.unwrap());
        assert_eq!(timer_now(), passed);
    }
}
