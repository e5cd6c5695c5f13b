//! Who waits for an answer, and until when.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tollgate_core::{Clock, Status, Timestamp, Verdict};

use crate::Error;
use crate::error::Cause;

pub(crate) type Answer = Result<Told, Error>;

/// A verdict on its way to its caller: a third of its size where it is of one check, as most are, since it passes through
/// several hands.
pub(crate) enum Told {
    One { times: u32, delay: Duration, status: Status },
    Several(Box<Verdict>),
}

impl From<Verdict> for Told {
    fn from(verdict: Verdict) -> Told {
        Told::Several(Box::new(verdict))
    }
}

impl From<Told> for Verdict {
    #[inline]
    fn from(told: Told) -> Verdict {
        match told {
            Told::One { times, delay, status } => Verdict::of_one(times, delay, status),
            Told::Several(verdict) => *verdict,
        }
    }
}

pub(crate) struct Caller<T = Told> {
    /// None, once it was told that its time is over.
    answer: Option<oneshot::Sender<Result<T, Error>>>,
    until: Option<Timestamp>,
}

impl<T> Caller<T> {
    pub(crate) fn new(until: Option<Timestamp>) -> (Caller<T>, oneshot::Receiver<Result<T, Error>>) {
        let (answer, receiver) = oneshot::channel();
        (Caller { answer: Some(answer), until }, receiver)
    }

    /// Whether it has neither given up nor been told that its time is over.
    pub(crate) fn waits(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
    }

    pub(crate) fn was_told(&self) -> bool {
        self.answer.is_none()
    }

    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }

    pub(crate) fn tell(self, what: Result<T, Error>) {
        if let Some(answer) = self.answer {
            // One that has given up hears nothing.
            let _ = answer.send(what);
        }
    }

    /// Tells what comes, or that it does not come in time. It is waited for all the same, so that nothing is left half done.
    pub(crate) async fn tell_in_time(self, clock: &Clock, what: impl Future<Output = Result<T, Error>>) {
        let Some(until) = self.until else { return self.tell(what.await) };
        let mut what = pin!(what);
        match timeout(span(clock.now(), until), &mut what).await {
            Ok(what) => self.tell(what),
            Err(_) => {
                self.tell(Err(Cause::Late.into()));
                what.await.map_or_else(drop, drop);
            }
        }
    }
}

/// A look at whose time is over.
pub(crate) struct Overdue {
    now: Timestamp,
    callers: Vec<oneshot::Sender<Answer>>,
    next: Option<Timestamp>,
}

impl Overdue {
    pub(crate) fn new(now: Timestamp) -> Overdue {
        Overdue { now, callers: Vec::new(), next: None }
    }

    /// Takes out those whose time is over, unless it is sure that there are none: the time of the first ends at `first`, which
    /// becomes that of the first who is left.
    ///
    /// Returns whether there were any.
    pub(crate) fn among<'a>(
        &mut self,
        first: &mut Option<Timestamp>,
        callers: impl Iterator<Item = &'a mut Caller>,
    ) -> bool {
        let are_any = first.is_some_and(|first| first <= self.now);
        if are_any {
            *first = None;
            for caller in callers {
                match caller.until {
                    Some(until) if until <= self.now => self.callers.extend(caller.answer.take()),
                    until => *first = sooner(*first, until),
                }
            }
        }
        self.next = sooner(self.next, *first);
        are_any
    }

    /// When the time of the first ends who is left.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Tells those who were taken out.
    pub(crate) fn tell(self) {
        if !self.callers.is_empty() {
            let error = Error::from(Cause::Late);
            for caller in self.callers {
                // One that has given up hears nothing.
                let _ = caller.send(Err(error.clone()));
            }
        }
    }
}

/// How long it is from one time to another; nothing, where that is over.
pub(crate) fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(to.as_micros().saturating_sub(from.as_micros()))
}

/// The earlier of two ends, of which there need not be any.
pub(crate) fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
