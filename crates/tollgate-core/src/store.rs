//! The contract between what asks and what remembers.

use std::future::Future;
use std::time::Duration;

use crate::{Check, Grant, Key, Policy, PolicyError, StoreError, Times, Verdict};

/// Holds the state of every (policy, key) pair and decides atomically.
///
/// One operation carries everything: *acquire the whole set of checks k times, with min ≤ k ≤ max; all or nothing
/// across the set.* A denial charges nobody. The crate `tollgate-conformance` is this contract as a test suite.
///
/// # What every store promises
/// - However many callers ask at once, no policy admits more than its algorithm says.
/// - Of a set, either every check is charged, k times its cost, or none is.
/// - A denied request and a look record nothing; asking again and again changes no wait.
/// - A cost of 0 passes always and charges nothing.
/// - State disappears by itself once it means nothing more, without a thread or a task of the user's.
///
/// Stores are handles: clones share their state.
pub trait Store: Clone + Send + Sync + 'static {
    /// What can go wrong. [`std::convert::Infallible`] for a store that always answers; of any other, a layer asks
    /// what an outage is to mean.
    type Error: StoreError;
    /// A verdict that has to be awaited.
    type Acquire: Future<Output = Result<Verdict, Self::Error>> + Send + 'static;
    /// The end of a refund or a reset that has to be awaited.
    type Done: Future<Output = Result<(), Self::Error>> + Send + 'static;

    /// Acquires the whole set as often as `times` asks, all or nothing.
    ///
    /// A future that is dropped may or may not have charged; it never charges part of a set.
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire>;

    /// Gives back units that were granted and not used.
    ///
    /// What comes back never exceeds the capacity, never lands in another window, and never creates state. Where the
    /// units have been refilled meanwhile, or their window is over, the refund is void. The delay that a leaky
    /// bucket has given to later requests stands: there only the latest grant can come back.
    ///
    /// A grant that is given back in parts takes the stamp of [`Stamp::after_refund`](crate::Stamp::after_refund) for the next. A
    /// bucket knows of each grant only when its debt ends: of two whose debts overlap, what time has returned of the younger
    /// may come back once more where the older was given back first. That is less than the older one was granted.
    ///
    /// Where the clock has stepped back since the grant, what was forgiven then does not come back once more, as far as that can be
    /// told. It cannot once the time of the grant comes a second time: a window that is aligned to the epoch takes it for its own
    /// then, and a bucket for a debt of now.
    ///
    /// A [reset](Store::reset) has brought everything back already. What was granted before it and is given back after it comes out
    /// of what was granted since, if that is as much: let go of such grants.
    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Self::Error>, Self::Done>;

    /// Has this handle, and clones made of it from then on, end each wait after `limit`, counted from when it is asked, with an
    /// error of the kind [`ErrorKind::Timeout`](crate::ErrorKind::Timeout): waits for verdicts, for refunds and for resets. What
    /// was asked may be done all the same. Of several limits the shortest holds; none is zero.
    ///
    /// Returns whether it will: else whoever wants a limit has a timer for each wait. A store that has its callers in a list has
    /// that for less.
    fn end_waits_after(&mut self, limit: Duration) -> bool {
        let _ = limit;
        false
    }

    /// Whether this store can enforce a policy: what it cannot is refused when a layer is made, and not when the first
    /// request comes. Wrappers ask the stores in them.
    ///
    /// # Errors
    /// Why it cannot.
    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        let _ = policy;
        Ok(())
    }

    /// Forgets what `key` has used of `policies`: the next request finds them full.
    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Self::Error>, Self::Done>;
}

/// An answer: at hand, or to be awaited. An answer at hand costs no future, no allocation and no wake-up.
#[derive(Debug)]
pub enum Reply<T, F> {
    /// The answer.
    Now(T),
    /// The answer will come.
    Later(F),
}

impl<T, F: Future<Output = T>> Reply<T, F> {
    /// Waits for the answer, if it is not there already.
    pub async fn wait(self) -> T {
        match self {
            Reply::Now(answer) => answer,
            Reply::Later(future) => future.await,
        }
    }
}
