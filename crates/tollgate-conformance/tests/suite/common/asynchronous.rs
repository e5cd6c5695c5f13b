//! A store whose answers are futures.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tollgate_core::{Check, Grant, Key, Policy, Reply, Store, Times, Verdict};

use super::OneLock;

/// The same store, but it decides only when an answer is awaited, at the third poll.
#[derive(Clone, Debug)]
pub(crate) struct Asynchronous(pub(crate) OneLock);

type Later<T> = Pin<Box<dyn Future<Output = Result<T, Infallible>> + Send>>;

impl Store for Asynchronous {
    type Error = Infallible;
    type Acquire = Later<Verdict>;
    type Done = Later<()>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Later<Verdict>> {
        let store = self.0.clone();
        let set: Vec<(Policy, Key, u64)> =
            set.iter().map(|check| (check.policy.clone(), check.key.clone(), check.cost)).collect();
        Reply::Later(Box::pin(async move {
            pending_twice().await;
            let set: Vec<Check<'_>> =
                set.iter().map(|(policy, key, cost)| Check::new(policy, key, *cost)).collect();
            store.acquire(&set, times).wait().await
        }))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Later<()>> {
        let reply = self.0.refund(grants);
        Reply::Later(Box::pin(async move {
            pending_twice().await;
            reply.wait().await
        }))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Later<()>> {
        let reply = self.0.reset(key, policies);
        Reply::Later(Box::pin(async move {
            pending_twice().await;
            reply.wait().await
        }))
    }
}

/// Is ready at the third poll.
async fn pending_twice() {
    let mut asked = 0;
    poll_fn(move |cx| {
        asked += 1;
        cx.waker().wake_by_ref();
        if asked == 3 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
