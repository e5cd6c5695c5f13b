//! A store whose type is chosen at run time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;
use crate::policy::share::Share;
use crate::policy::{Policy, PolicyError};
use crate::store::Store;
use crate::store::block_start::BlockStart;
use crate::store::check::{Check, Grant, Times};
use crate::store::end::End;
use crate::store::error::StoreError;
use crate::store::renewal::RenewalReport;
use crate::store::reply::Reply;
use crate::store::sent_claims::SentClaims;
use crate::store::settled::Settled;
use crate::store::unsent::Unsent;
use crate::store::verdict::Verdict;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type BoxReply<T> = Reply<T, BoxFuture<T>>;

/// A [`Store`] of any type with the error `E`, for a program that chooses its store at run time.
/// Answers that are available stay so; each future costs one allocation.
pub struct BoxStore<E>(Arc<dyn ErasedStore<E>>);

impl<E> BoxStore<E> {
    /// Erases the type of a store.
    pub fn new<S: Store<Error = E>>(store: S) -> BoxStore<E> {
        BoxStore(Arc::new(store))
    }
}

impl<E> Clone for BoxStore<E> {
    fn clone(&self) -> BoxStore<E> {
        BoxStore(Arc::clone(&self.0))
    }
}

impl<E> fmt::Debug for BoxStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxStore(..)")
    }
}

/// [`Store`] without its associated futures, so that it is dyn-compatible.
trait ErasedStore<E>: Send + Sync {
    fn acquire(&self, set: &[Check<'_>], times: Times) -> BoxReply<Result<Verdict, E>>;
    fn refund(&self, grants: &[Grant<'_>]) -> BoxFuture<Result<(), E>>;
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> BoxFuture<Result<Settled, E>>;
    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> BoxFuture<Result<(), E>>;
    fn block(&self, policy: &Policy, key: &Key, share: Option<Share>) -> BoxFuture<Result<BlockStart, E>>;
    fn reset(&self, key: &Key, policies: &[&Policy]) -> BoxFuture<Result<(), E>>;
    fn with_deadline(&self, deadline: Option<Duration>) -> BoxStore<E>;
    fn wait_limit(&self) -> Option<Duration>;
    fn sent_claims(&self) -> Option<&SentClaims>;
    fn in_shadow(&self) -> BoxStore<E>;
    fn close(&self, limit: Duration) -> BoxFuture<Unsent>;
    fn supports(&self, policy: &Policy) -> Result<(), PolicyError>;
}

impl<S: Store> ErasedStore<S::Error> for S {
    fn acquire(&self, set: &[Check<'_>], times: Times) -> BoxReply<Result<Verdict, S::Error>> {
        boxed(Store::acquire(self, set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> BoxFuture<Result<(), S::Error>> {
        Box::pin(Store::refund(self, grants))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> BoxFuture<Result<Settled, S::Error>> {
        Box::pin(Store::settle(self, grants, total))
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> BoxFuture<Result<(), S::Error>> {
        Box::pin(Store::renew(self, grants, report))
    }

    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> BoxFuture<Result<BlockStart, S::Error>> {
        Box::pin(Store::block(self, policy, key, share))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> BoxFuture<Result<(), S::Error>> {
        Box::pin(Store::reset(self, key, policies))
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> BoxStore<S::Error> {
        BoxStore::new(Store::with_deadline(self, deadline))
    }

    fn wait_limit(&self) -> Option<Duration> {
        Store::wait_limit(self)
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        Store::sent_claims(self)
    }

    fn in_shadow(&self) -> BoxStore<S::Error> {
        BoxStore::new(Store::in_shadow(self))
    }

    fn close(&self, limit: Duration) -> BoxFuture<Unsent> {
        Box::pin(Store::close(self, limit))
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        Store::supports(self, policy)
    }
}

fn boxed<T>(reply: Reply<T, impl Future<Output = T> + Send + 'static>) -> BoxReply<T> {
    match reply {
        Reply::Now(answer) => Reply::Now(answer),
        Reply::Later(future) => Reply::Later(Box::pin(future)),
    }
}

impl<E: StoreError> Store for BoxStore<E> {
    type Error = E;
    type Acquire = BoxFuture<Result<Verdict, E>>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> BoxReply<Result<Verdict, E>> {
        self.0.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), E> + use<E> {
        self.0.refund(grants)
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, E> + use<E> {
        self.0.settle(grants, total)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), E> + use<E> {
        self.0.renew(grants, report)
    }

    fn block(&self, policy: &Policy, key: &Key, share: Option<Share>) -> impl End<BlockStart, E> + use<E> {
        self.0.block(policy, key, share)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), E> + use<E> {
        self.0.reset(key, policies)
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> BoxStore<E> {
        self.0.with_deadline(deadline)
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.0.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.0.sent_claims()
    }

    fn in_shadow(&self) -> BoxStore<E> {
        self.0.in_shadow()
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<E> {
        self.0.close(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.0.supports(policy)
    }
}
