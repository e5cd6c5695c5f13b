//! Settling brings a correction to its end, whether or not somebody waits for it.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tollgate_core::{Key, Policy, Settled};

use super::account::{Account, Granted};
use crate::denial::Denial;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A limiter without the type of its store, which handlers do not know.
pub(crate) trait Settler: Send + Sync + 'static {
    /// The policy with this number.
    fn policy(&self, number: usize) -> &Policy;

    /// Charges more units. `None` if a failure policy let them pass.
    fn extend<'a>(
        &'a self,
        policy: usize,
        key: &'a Key,
        units: u64,
    ) -> BoxFuture<'a, Result<Option<Granted>, Denial>>;

    /// Corrects what an account has charged.
    fn settle<'a>(
        &'a self,
        policy: usize,
        key: &'a Key,
        account: &'a Account,
        total: u64,
    ) -> BoxFuture<'a, Settled>;

    /// Shows observers how a charge has ended.
    fn show(&self, policy: usize, settled: Settled);
}

/// A correction that has been started.
pub(super) enum Settling {
    Done(Settled),
    /// Goes on in a task.
    Task(JoinHandle<Settled>),
    /// Goes on while it is polled, since there is no runtime.
    Alone(BoxFuture<'static, Settled>),
}

/// Starts to correct an account to `total`.
pub(super) fn start(
    settler: &Arc<dyn Settler>,
    policy: usize,
    key: Option<Key>,
    account: Account,
    total: u64,
    runtime: Option<Handle>,
) -> Settling {
    let Some(key) = key else { return Settling::Done(Settled { charged: 0, debt: 0, forgiven: total }) };
    let mut open = Open { settler: Arc::clone(settler), policy, key, account, total, is_done: false };
    let mut future: BoxFuture<'static, Settled> = Box::pin(async move { open.finish().await });
    // A store may need the runtime's timers.
    let _entered = runtime.as_ref().map(Handle::enter);
    // A store in memory answers now. A task polls all others again.
    match (future.as_mut().poll(&mut Context::from_waker(Waker::noop())), &runtime) {
        (Poll::Ready(settled), _) => Settling::Done(settled),
        (Poll::Pending, Some(runtime)) => Settling::Task(runtime.spawn(future)),
        (Poll::Pending, None) => Settling::Alone(future),
    }
}

impl Settling {
    pub(super) async fn finish(self) -> Settled {
        match self {
            Settling::Done(settled) => settled,
            // It fails only if the runtime stops. Observers have heard of it then.
            Settling::Task(task) => task.await.unwrap_or_default(),
            Settling::Alone(future) => future.await,
        }
    }

    /// Nobody waits for the end.
    pub(super) fn detach(self) {
        drop(self);
    }
}

/// An account that is being settled. If this is dropped before the end, because its runtime has
/// stopped, the charge stays, and observers hear of it.
struct Open {
    settler: Arc<dyn Settler>,
    policy: usize,
    key: Key,
    account: Account,
    total: u64,
    is_done: bool,
}

impl Open {
    async fn finish(&mut self) -> Settled {
        let Open { settler, policy, key, account, total, .. } = &*self;
        let settled = settler.settle(*policy, key, account, *total).await;
        settler.show(*policy, settled);
        self.is_done = true;
        settled
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !mem::replace(&mut self.is_done, true) {
            let (grants, total) =
                self.account.correction(self.settler.policy(self.policy), &self.key, self.total);
            let unchanged = Settled::unchanged(&grants, total);
            self.settler.show(self.policy, self.account.settled(self.total, unchanged));
        }
    }
}
