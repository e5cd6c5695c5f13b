//! What decides while a store fails.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    BlockStart, Check, End, Grant, Key, Policy, PolicyError, RenewalReport, Reply, Settled, Share, Times,
    Unsent, Verdict,
};

pub(super) type GrantSet<'a> = SmallVec<[Grant<'a>; 4]>;

/// Decides the checks that a store failed to decide, and ends its own grants.
pub trait Substitute: Clone + Send + Sync + 'static {
    /// What a request keeps until the store has answered.
    type Kept: Send + 'static;
    /// A decision that comes later.
    type Acquire: Future<Output = Verdict> + Send + 'static;

    /// Copies what [`Substitute::decide_kept`] needs.
    fn keep(&self, set: &[Check<'_>], times: Times) -> Self::Kept;

    /// Decides if the store failed at once.
    fn decide(&self, set: &[Check<'_>], times: Times) -> Reply<Verdict, Self::Acquire>;

    /// Decides if the store failed later.
    fn decide_kept(&self, kept: &Self::Kept) -> Reply<Verdict, Self::Acquire>;

    /// Whether it made the grants with this share, and not the store.
    fn made(&self, share: Option<Share>) -> bool;

    /// Refunds grants that it made.
    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<Self>;

    /// Corrects grants that it made.
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Infallible> + use<Self>;

    /// Renews slots that it granted.
    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Infallible> + use<Self>;

    /// Blocks a key that it denied.
    fn block(&self, policy: &Policy, key: &Key) -> impl End<BlockStart, Infallible> + use<Self>;

    /// Forgets the usage of a key.
    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<Self>;

    /// Sends what it has not sent yet.
    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<Self>;

    /// That of rules in shadow.
    #[must_use]
    fn in_shadow(&self) -> Self;

    /// Whether it can decide by this policy.
    fn supports(&self, policy: &Policy) -> Result<(), PolicyError>;
}
