//! Brings corrections of charges to their end, whether or not a caller waits for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tollgate_core::{Key, Policy, Settled};

use super::reservation::{GrantStamp, Reservation};
use crate::denial::Denial;
use crate::policy_set::PolicyRef;

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

    /// Corrects what a reservation has charged.
    fn settle<'a>(
        &'a self,
        policy: &'a PolicyRef,
        key: &'a Key,
        reservation: &'a Reservation,
        total: u64,
    ) -> SettlerFuture<'a, Settled>;

    /// Shows observers how a charge has ended.
    fn show(&self, policy: &PolicyRef, settled: Settled);
}

/// A correction that goes on.
pub(crate) type CorrectionTask = JoinHandle<Settled>;

/// A correction that has been started.
pub(super) enum Correction {
    Done(Settled),
    /// Goes on in a task.
    Task(CorrectionTask),
    /// Goes on while it is polled, since there is no runtime.
    Alone(SettlerFuture<'static, Settled>),
}

/// Starts to correct a reservation to `total`.
pub(super) fn start(
    settler: &Arc<dyn Settler>,
    policy: PolicyRef,
    key: Option<Key>,
    reservation: Reservation,
    total: u64,
    runtime: Option<Handle>,
) -> Correction {
    let Some(key) = key else { return Correction::Done(Settled { charged: 0, debt: 0, forgiven: total }) };
    let mut open =
        Unsettled { settler: Arc::clone(settler), policy, key, reservation, total, is_done: false };
    let mut future: SettlerFuture<'static, Settled> = Box::pin(async move { open.finish().await });
    // A store may need the runtime's timers.
    let _entered = runtime.as_ref().map(Handle::enter);
    // A store in memory answers now. A task polls all others again.
    match (future.as_mut().poll(&mut Context::from_waker(Waker::noop())), &runtime) {
        (Poll::Ready(settled), _) => Correction::Done(settled),
        (Poll::Pending, Some(runtime)) => Correction::Task(runtime.spawn(future)),
        (Poll::Pending, None) => Correction::Alone(future),
    }
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
    pub(super) async fn finish(self) -> Settled {
        match self {
            Correction::Done(settled) => settled,
            // It fails only if the runtime stops. Observers have heard of it then.
            Correction::Task(task) => task.await.unwrap_or_default(),
            Correction::Alone(future) => future.await,
        }
    }

    /// Lets it go on. Returns the task, if it is not done yet.
    pub(super) fn detach(self) -> Option<CorrectionTask> {
        match self {
            Correction::Task(task) => Some(task),
            Correction::Done(_) | Correction::Alone(_) => None,
        }
    }
}

/// A reservation that is being settled. If this is dropped before the end, such as when its runtime
/// has stopped, the charge stays, and observers hear of it.
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
        let settled = settler.settle(policy, key, reservation, *total).await;
        settler.show(policy, settled);
        self.is_done = true;
        settled
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if !self.is_done {
            let (grants, total) =
                self.reservation.correction(self.settler.policy(&self.policy), &self.key, self.total);
            let unchanged = Settled::unchanged(&grants, total);
            self.settler.show(&self.policy, self.reservation.settled(self.total, unchanged));
        }
    }
}
