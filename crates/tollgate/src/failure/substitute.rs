//! What decides while a store fails.

use std::convert::Infallible;
use std::future::Future;

use smallvec::SmallVec;
use tollgate_core::{Check, Grant, Key, Policy, PolicyError, Renewal, Reply, Settled, Times, Verdict};

pub(super) type GrantSet<'a> = SmallVec<[Grant<'a>; 4]>;

/// Decides the checks that a store failed to decide, and ends its own grants.
pub trait Substitute: Clone + Send + Sync + 'static {
    /// What a request keeps until the store has answered.
    type Kept: Send + 'static;
    /// A decision that comes later.
    type Acquire: Future<Output = Verdict> + Send + 'static;
    /// A refund or a reset that comes later.
    type Done: Future<Output = Result<(), Infallible>> + Send + 'static;

    /// Copies what [`Substitute::decide_kept`] needs.
    fn keep(&self, set: &[Check<'_>], times: Times) -> Self::Kept;

    /// Decides if the store failed at once.
    fn decide(&self, set: &[Check<'_>], times: Times) -> Reply<Verdict, Self::Acquire>;

    /// Decides if the store failed later.
    fn decide_kept(&self, kept: &Self::Kept) -> Reply<Verdict, Self::Acquire>;

    /// Whether it made this grant, and not the store.
    fn made(&self, grant: &Grant<'_>) -> bool;

    /// Refunds grants that it made.
    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done>;

    /// Corrects grants that it made.
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl Future<Output = Settled> + Send;

    /// Renews slots that it granted.
    fn renew(&self, grants: &[Grant<'_>]) -> impl Future<Output = Vec<Renewal>> + Send;

    /// Forgets the usage of a key.
    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done>;

    /// That of rules in shadow.
    #[must_use]
    fn in_shadow(&self) -> Self;

    /// Whether it can decide by this policy.
    fn supports(&self, policy: &Policy) -> Result<(), PolicyError>;
}
