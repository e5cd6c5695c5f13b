//! What becomes of a wait when rules are replaced.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::asking::Admission;
use super::live::Live;
use super::refusal::Refusal;
use super::wait_queue::Waiter;
use crate::decision::Denial;

/// How a wait has ended.
pub(crate) enum Waited<P = Box<Waiting>> {
    /// The store decided. Of a caller that waits for slots only, observers have not seen it yet.
    Decided(Admission),
    /// A caller with a patience of its own does not wait any longer. The denial may be that of one
    /// policy, which has refused another caller.
    Refused(Denial),
    /// The rules were replaced. The caller asks again by the new ones, from its place.
    Replaced(P),
}

/// How the wait of a request has ended, with the rules that may have been replaced.
pub(crate) type WaitedRequest<S> = Waited<(Box<Waiting>, Arc<Live<S>>)>;

impl<P> From<Admission> for Waited<P> {
    fn from(admission: Admission) -> Waited<P> {
        Waited::Decided(admission)
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
    pub(super) fn left_of(&self, deadline: Option<Duration>) -> Option<Duration> {
        let waited = self.begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        deadline.map(|deadline| deadline.saturating_sub(waited))
    }
}
