//! Callers that wait for an answer, and their deadlines.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tollgate_core::{Clock, Timestamp, Verdict};

use crate::error::Error;

/// Resolves to the answer for one caller.
pub(crate) type AnswerReceiver<A> = oneshot::Receiver<Result<A, Error>>;

/// For a check.
pub(crate) type VerdictReceiver = AnswerReceiver<Answered>;

/// For what goes back: whether each slot that was renewed is held.
pub(crate) type ReturnReceiver = AnswerReceiver<Vec<bool>>;

/// Refunds what a claim was granted.
pub(crate) type Undo = Box<dyn FnOnce() + Send + Sync>;

/// A verdict on its way to its caller. If the caller does not [accept](Answered::accept) it, what
/// a claim was granted is refunded.
pub(crate) struct Answered {
    verdict: Verdict,
    undo: UndoOnDrop,
}

/// `None` unless a claim was granted.
struct UndoOnDrop(Option<Undo>);

impl Drop for UndoOnDrop {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl Answered {
    /// That of a claim that was granted.
    pub(crate) fn with_undo(verdict: Verdict, undo: Option<Undo>) -> Answered {
        Answered { verdict, undo: UndoOnDrop(undo) }
    }

    /// From now on the caller is responsible for what it was granted.
    pub(crate) fn accept(mut self) -> Verdict {
        self.undo.0 = None;
        self.verdict
    }
}

impl From<Verdict> for Answered {
    fn from(verdict: Verdict) -> Answered {
        Answered::with_undo(verdict, None)
    }
}

/// When a caller asked, and when its wait ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) asked: Timestamp,
    pub(crate) until: Timestamp,
}

pub(crate) struct Caller<A> {
    /// `None` after the caller has been notified that its deadline passed.
    answer: Option<oneshot::Sender<Result<A, Error>>>,
    deadline: Option<Deadline>,
    /// Whether what it is granted is refunded if it has gone.
    is_claim: bool,
}

impl<A> Caller<A> {
    pub(crate) fn new(deadline: Option<Deadline>) -> (Caller<A>, AnswerReceiver<A>) {
        let (answer, receiver) = oneshot::channel();
        (Caller { answer: Some(answer), deadline, is_claim: false }, receiver)
    }

    /// The same caller, whose grant is refunded if it has gone.
    pub(super) fn claiming(self, is_claim: bool) -> Caller<A> {
        Caller { is_claim, ..self }
    }

    pub(super) fn is_claim(&self) -> bool {
        self.is_claim
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

    pub(crate) fn notify(mut self, answer: Result<impl Into<A>, Error>) {
        self.send(answer.map(Into::into));
    }

    /// Notifies the caller of a failure, and keeps its place for a late answer.
    pub(super) fn fail(&mut self, error: &Error) {
        self.send(Err(error.clone()));
    }

    /// Answers the caller, unless it has been notified before.
    pub(super) fn send(&mut self, answer: Result<A, Error>) {
        if let Some(caller) = self.answer.take() {
            // An error means that the caller has left. What a claim was granted is then refunded.
            let _ = caller.send(answer);
        }
    }

    /// Notifies the caller of the outcome of `steps`, or at the deadline of `why` it is late. Runs
    /// `steps` to their end in both cases.
    pub(crate) async fn notify_in_time(
        self,
        clock: &Clock,
        steps: impl Future<Output = Result<A, Error>>,
        why: impl FnOnce(Deadline) -> Error,
    ) {
        let Some(deadline) = self.deadline else { return self.notify(steps.await) };
        let mut steps = pin!(steps);
        match timeout(span(clock.now(), deadline.until), &mut steps).await {
            Ok(answer) => self.notify(answer),
            Err(_) => {
                self.notify(Err::<A, _>(why(deadline)));
                // Dropped, so that what a claim is granted now is refunded.
                steps.await.map_or_else(drop, drop);
            }
        }
    }
}

/// Collects callers whose deadline has passed. They are notified after the locks are released.
pub(super) struct Overdue<A> {
    now: Timestamp,
    late: Vec<(oneshot::Sender<Result<A, Error>>, Error)>,
    next: Option<Timestamp>,
}

impl<A> Overdue<A> {
    pub(super) fn new(now: Timestamp) -> Overdue<A> {
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
        callers: impl Iterator<Item = &'a mut Caller<A>>,
        why: &mut dyn FnMut(Deadline) -> Error,
    ) -> bool
    where
        A: 'a,
    {
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
