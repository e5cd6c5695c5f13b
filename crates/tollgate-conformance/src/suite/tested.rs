//! The store under test without its type: the cases are compiled once, not for each store.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use tollgate_core::{
    BlockStart, Check, Grant, Key, Policy, Renewal, Reply, Settled, Store, Times, Verdict, credit, renewals,
};

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// The reply of a store whose error is text.
pub(super) type ReplyOf<T> = Reply<Result<T, String>, BoxFuture<T>>;

/// [`Store`] as a trait object. A `BoxStore` shares one store among its clones, and the clones of
/// the store itself are under test too.
pub(super) trait Tested: Send + Sync {
    fn acquire(&self, set: &[Check<'_>], times: Times) -> ReplyOf<Verdict>;
    fn refund(&self, grants: &[Grant<'_>]) -> BoxFuture<()>;
    fn credit(&self, policy: &Policy, key: &Key, units: u64) -> BoxFuture<()>;
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> BoxFuture<Settled>;
    fn renew(&self, grants: &[Grant<'_>]) -> BoxFuture<Vec<Renewal>>;
    fn block(&self, policy: &Policy, key: &Key) -> BoxFuture<BlockStart>;
    fn reset(&self, key: &Key, policies: &[&Policy]) -> BoxFuture<()>;
    fn cloned(&self) -> Box<dyn Tested>;
}

impl<S: Store<Error: Debug>> Tested for S {
    fn acquire(&self, set: &[Check<'_>], times: Times) -> ReplyOf<Verdict> {
        match Store::acquire(self, set, times) {
            // An answer that is available immediately is under test too.
            Reply::Now(answer) => Reply::Now(answer.map_err(|error| format!("{error:?}"))),
            Reply::Later(future) => Reply::Later(with_text(future)),
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> BoxFuture<()> {
        with_text(Store::refund(self, grants))
    }

    fn credit(&self, policy: &Policy, key: &Key, units: u64) -> BoxFuture<()> {
        with_text(credit(self, policy, key, units))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> BoxFuture<Settled> {
        with_text(Store::settle(self, grants, total))
    }

    fn renew(&self, grants: &[Grant<'_>]) -> BoxFuture<Vec<Renewal>> {
        with_text(renewals(self, grants))
    }

    fn block(&self, policy: &Policy, key: &Key) -> BoxFuture<BlockStart> {
        with_text(Store::block(self, policy, key, None))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> BoxFuture<()> {
        with_text(Store::reset(self, key, policies))
    }

    fn cloned(&self) -> Box<dyn Tested> {
        Box::new(self.clone())
    }
}

fn with_text<T, E: Debug>(answer: impl Future<Output = Result<T, E>> + Send + 'static) -> BoxFuture<T> {
    Box::pin(async move { answer.await.map_err(|error| format!("{error:?}")) })
}
