//! The store under test without its type: the cases are compiled once, not for each store.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use tollgate_core::{Check, Grant, Key, Policy, Renewal, Reply, Settled, Store, Times, Verdict};

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The reply of a store whose error is text.
pub(super) type ReplyOf<T> = Reply<Result<T, String>, BoxFuture<'static, Result<T, String>>>;

/// [`Store`] as a trait object. A `BoxStore` shares one store among its clones, and the clones of
/// the store itself are under test too.
pub(super) trait Tested: Send + Sync {
    fn acquire(&self, set: &[Check<'_>], times: Times) -> ReplyOf<Verdict>;
    fn refund(&self, grants: &[Grant<'_>]) -> ReplyOf<()>;
    fn settle<'a>(&'a self, grants: &'a [Grant<'a>], total: u64) -> BoxFuture<'a, Result<Settled, String>>;
    fn renew<'a>(&'a self, grants: &'a [Grant<'a>]) -> BoxFuture<'a, Result<Vec<Renewal>, String>>;
    fn reset(&self, key: &Key, policies: &[&Policy]) -> ReplyOf<()>;
    fn cloned(&self) -> Box<dyn Tested>;
}

impl<S: Store<Error: Debug>> Tested for S {
    fn acquire(&self, set: &[Check<'_>], times: Times) -> ReplyOf<Verdict> {
        with_text(Store::acquire(self, set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> ReplyOf<()> {
        with_text(Store::refund(self, grants))
    }

    fn settle<'a>(&'a self, grants: &'a [Grant<'a>], total: u64) -> BoxFuture<'a, Result<Settled, String>> {
        Box::pin(
            async move { Store::settle(self, grants, total).await.map_err(|error| format!("{error:?}")) },
        )
    }

    fn renew<'a>(&'a self, grants: &'a [Grant<'a>]) -> BoxFuture<'a, Result<Vec<Renewal>, String>> {
        Box::pin(async move { Store::renew(self, grants).await.map_err(|error| format!("{error:?}")) })
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> ReplyOf<()> {
        with_text(Store::reset(self, key, policies))
    }

    fn cloned(&self) -> Box<dyn Tested> {
        Box::new(self.clone())
    }
}

/// Keeps an answer that is available immediately, which is under test too.
fn with_text<T: 'static, E: Debug + 'static>(
    reply: Reply<Result<T, E>, impl Future<Output = Result<T, E>> + Send + 'static>,
) -> ReplyOf<T> {
    let text = |error: E| format!("{error:?}");
    match reply {
        Reply::Now(answer) => Reply::Now(answer.map_err(text)),
        Reply::Later(future) => Reply::Later(Box::pin(async move { future.await.map_err(text) })),
    }
}
