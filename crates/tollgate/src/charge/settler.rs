//! Brings corrections of charges to their end, whether or not a caller waits for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_core::{Key, Policy, Settled};

use super::reservation::{GrantStamp, Reservation};
use crate::denial::Denial;
use crate::ending::{EndPhase, Home, within};
use crate::plan::PolicyRef;

pub(crate) type SettlerFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A limiter without the type of its store, which handlers do not know.
pub(crate) trait Settler: Send + Sync + 'static {
    /// The policy with this number.
    fn policy<'a>(&'a self, policy: &'a PolicyRef) -> &'a Policy;

    /// Charges more units. `None` if a failure policy let them pass.
    fn extend<'a>(
        &'a self,
        policy: &'a PolicyRef,
        key: &'a Key,
        units: u64,
    ) -> SettlerFuture<'a, Result<Option<GrantStamp>, Denial>>;

    /// How long a caller waits for a correction, if there is a limit. The correction goes on.
    fn wait_limit(&self) -> Option<Duration>;

    /// Corrects the grants of a reservation. A charge of more than was granted takes as long as the
    /// store does.
    fn settle(
        &self,
        policy: &PolicyRef,
        key: &Key,
        reservation: &Reservation,
        total: u64,
    ) -> SettlerFuture<'static, Settled>;

    /// Shows observers how a charge has ended.
    fn show(&self, policy: &PolicyRef, settled: Settled);
}

/// No correction waits longer than that for a store that does not answer.
const LONGEST_CORRECTION: Duration = Duration::from_secs(60);

/// A correction that goes on.
pub(crate) type CorrectionTask = JoinHandle<Settled>;

/// A correction that has been started.
pub(super) struct Correction {
    ending: EndPhase<Settled>,
    /// How long a caller waits for it, if there is a limit.
    limit: Option<Duration>,
    /// What the caller gets without an answer within the limit.
    unanswered: Settled,
}

/// Starts to correct a reservation to `total`.
pub(super) fn start(
    settler: &Arc<dyn Settler>,
    policy: PolicyRef,
    key: Option<Key>,
    reservation: Reservation,
    total: u64,
    home: &Home,
) -> Correction {
    let Some(key) = key else { return Correction::done(Settled { forgiven: total, ..Settled::default() }) };
    // What is less than the estimate ends with the wait of the store.
    let limit = settler.wait_limit().filter(|_| total > reservation.reserved());
    let unanswered = unanswered(&**settler, &policy, &key, &reservation, total);
    let mut open =
        Unsettled { settler: Arc::clone(settler), policy, key, reservation, total, is_done: false };
    let ending = home.end(|| async move {
        // Dropped after that, it shows that it was not answered.
        within(LONGEST_CORRECTION, open.finish()).await.unwrap_or(unanswered)
    });
    Correction { ending, limit, unanswered }
}

/// Leaves a reservation as it is, and shows that to observers.
pub(super) fn keep(
    settler: &Arc<dyn Settler>,
    policy: PolicyRef,
    key: Option<Key>,
    reservation: Reservation,
) {
    let Some(key) = key else { return };
    let total = reservation.reserved();
    drop(Unsettled { settler: Arc::clone(settler), policy, key, reservation, total, is_done: false });
}

impl Correction {
    fn done(settled: Settled) -> Correction {
        Correction { ending: EndPhase::Done(settled), limit: None, unanswered: Settled::default() }
    }

    pub(super) async fn finish(self) -> Settled {
        match (self.ending, self.limit) {
            (EndPhase::Done(settled), _) => settled,
            // It fails only if the runtime stops. Observers have heard of it then.
            (EndPhase::Task(task), Some(limit)) if Handle::try_current().is_ok() => {
                timeout(limit, task).await.map_or(self.unanswered, Result::unwrap_or_default)
            }
            (EndPhase::Task(task), _) => task.await.unwrap_or_default(),
            (EndPhase::Alone(future), _) => future.await,
        }
    }

    /// Lets it go on. Returns the task, if it is not done yet.
    pub(super) fn detach(self) -> Option<CorrectionTask> {
        match self.ending {
            EndPhase::Task(task) => Some(task),
            EndPhase::Done(_) | EndPhase::Alone(_) => None,
        }
    }
}

/// A reservation that is being settled. If this is dropped before the end, such as when its runtime
/// has stopped, observers hear that it was not answered.
struct Unsettled {
    settler: Arc<dyn Settler>,
    policy: PolicyRef,
    key: Key,
    reservation: Reservation,
    total: u64,
    is_done: bool,
}

impl Unsettled {
    async fn finish(&mut self) -> Settled {
        let Unsettled { settler, policy, key, reservation, total, .. } = &*self;
        let corrected = settler.settle(policy, key, reservation, *total).await;
        let settled = reservation.settled(*total, corrected);
        settler.show(policy, settled);
        self.is_done = true;
        settled
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if !self.is_done {
            let Unsettled { settler, policy, key, reservation, total, .. } = self;
            settler.show(policy, unanswered(&**settler, policy, key, reservation, *total));
        }
    }
}

/// What becomes of a correction that is not answered.
fn unanswered(
    settler: &dyn Settler,
    policy: &PolicyRef,
    key: &Key,
    reservation: &Reservation,
    total: u64,
) -> Settled {
    let (grants, rest) = reservation.correction(settler.policy(policy), key, total);
    reservation.settled(total, Settled::unanswered(&grants, rest))
}
