//! What becomes of a wait when rules are replaced.

use tokio::time::Instant;

use super::asking::Admission;
use super::refusal::Refusal;
use super::wait_queue::Waiter;

/// The end of a wait, or of the rules by which a caller has waited so far.
pub(crate) enum Waited<T> {
    Over(T),
    /// The caller asks again by the new rules, from its place.
    Replaced(Box<Waiting>),
}

impl From<Admission> for Waited<Admission> {
    fn from(admission: Admission) -> Waited<Admission> {
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
