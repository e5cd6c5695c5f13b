//! What becomes of a wait when rules are replaced.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::asking::Admission;
use super::live::Live;
use super::refusal::Refusal;
use super::wait_queue::Waiter;
use crate::decision::Denial;

/// The end of a wait, or of the rules by which a caller has waited so far.
pub(crate) enum Waited<T, P = Box<Waiting>> {
    Over(T),
    /// The caller waited for rules of any kind, and does not any longer. The denial may be that of
    /// one policy, which has refused another caller.
    Refused(Denial),
    /// The caller asks again by the new rules, from its place.
    Replaced(P),
}

/// What a request of a layer has waited for. If rules are replaced, it asks these from its place.
pub(crate) type WaitedRequest<S> = Waited<Admission, (Box<Waiting>, Arc<Live<S>>)>;

impl<P> From<Admission> for Waited<Admission, P> {
    fn from(admission: Admission) -> Waited<Admission, P> {
        Waited::Over(admission)
    }
}

/// What a caller that waits keeps when its rules are replaced.
#[derive(Default)]
pub(crate) struct Waiting {
    /// When it began to wait.
    pub(super) begin: Option<Instant>,
    /// Its place in every queue.
    pub(super) arrival: Option<u64>,
    pub(super) waiter: Option<Waiter<Refusal>>,
}

impl Waiting {
    /// What is left of a caller's deadline.
    #[inline]
    pub(super) fn left_of(place: Option<&Waiting>, deadline: Option<Duration>) -> Option<Duration> {
        let begin = place.and_then(|place| place.begin);
        deadline.map(|deadline| begin.map_or(deadline, |begin| deadline.saturating_sub(begin.elapsed())))
    }
}
