//! Callers that wait for an answer, and their deadlines.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tollgate_core::{Clock, Timestamp, Verdict};

use crate::error::{Cause, Error};

/// Resolves to the answer for one caller. Refunds and resets get an empty verdict.
pub(crate) type VerdictReceiver = oneshot::Receiver<Result<Verdict, Error>>;

/// When a caller asked, and when its wait ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) asked: Timestamp,
    pub(crate) until: Timestamp,
}

pub(crate) struct Caller {
    /// `None` after the caller has been notified that its deadline passed.
    answer: Option<oneshot::Sender<Result<Verdict, Error>>>,
    deadline: Option<Deadline>,
}

impl Caller {
    pub(crate) fn new(deadline: Option<Deadline>) -> (Caller, VerdictReceiver) {
        let (answer, receiver) = oneshot::channel();
        (Caller { answer: Some(answer), deadline }, receiver)
    }

    /// Whether the caller still wants an answer: it has not left, and its deadline has not passed.
    pub(super) fn is_waiting(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
    }

    /// Whether the caller has been notified that its deadline passed.
    pub(super) fn is_overdue(&self) -> bool {
        self.answer.is_none()
    }

    /// From now on the caller waits for the answer.
    pub(super) fn forget_deadline(&mut self) {
        self.deadline = None;
    }

    pub(super) fn until(&self) -> Option<Timestamp> {
        self.deadline.map(|deadline| deadline.until)
    }

    pub(super) fn notify(self, verdict: Result<Verdict, Error>) {
        if let Some(answer) = self.answer {
            // An error means that the caller has left.
            let _ = answer.send(verdict);
        }
    }

    /// Notifies the caller of the outcome of `steps`, or of a timeout at the deadline. Runs `steps`
    /// to their end in both cases.
    pub(crate) async fn notify_in_time(
        self,
        clock: &Clock,
        steps: impl Future<Output = Result<Verdict, Error>>,
    ) {
        let Some(until) = self.until() else { return self.notify(steps.await) };
        let mut steps = pin!(steps);
        match timeout(span(clock.now(), until), &mut steps).await {
            Ok(verdict) => self.notify(verdict),
            Err(_) => {
                self.notify(Err(Cause::Late.into()));
                steps.await.map_or_else(drop, drop);
            }
        }
    }
}

/// Collects callers whose deadline has passed. They are notified after the locks are released.
pub(super) struct Overdue {
    now: Timestamp,
    late: Vec<(oneshot::Sender<Result<Verdict, Error>>, Error)>,
    next: Option<Timestamp>,
}

impl Overdue {
    pub(super) fn new(now: Timestamp) -> Overdue {
        Overdue { now, late: Vec::new(), next: None }
    }

    /// Takes the overdue callers out of `callers`, with the error that `why` gives for each
    /// deadline.
    ///
    /// `first` is the earliest deadline among them, and is updated. Returns whether any caller was
    /// overdue.
    pub(super) fn take<'a>(
        &mut self,
        first: &mut Option<Timestamp>,
        callers: impl Iterator<Item = &'a mut Caller>,
        why: &mut dyn FnMut(Deadline) -> Error,
    ) -> bool {
        let are_any = first.is_some_and(|first| first <= self.now);
        if are_any {
            *first = None;
            for caller in callers {
                match caller.deadline {
                    Some(deadline) if deadline.until <= self.now => {
                        self.late.extend(caller.answer.take().map(|answer| (answer, why(deadline))));
                    }
                    _ => *first = sooner(*first, caller.until()),
                }
            }
        }
        self.next = sooner(self.next, *first);
        are_any
    }

    /// The earliest deadline among the callers that were left.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    pub(super) fn notify(self) {
        for (answer, error) in self.late {
            // An error means that the caller has left.
            let _ = answer.send(Err(error));
        }
    }
}

/// The time from one moment to another; zero if that has passed.
pub(super) fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(to.as_micros().saturating_sub(from.as_micros()))
}

/// The earlier of two deadlines.
pub(super) fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
