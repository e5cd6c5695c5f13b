//! How operators block keys.

use std::time::Duration;

use tollgate_core::{Key, Store};

use super::{Limiter, RequestLimiter};
use crate::errors::{SetupError, or_panic};
use crate::store::NeverFails;

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Blocks `key` now, for the time of [`Policy::block_after`](crate::Policy::block_after). A
    /// block that goes on ends when it would have: [lift](Limiter::unblock) it first to start it
    /// again. Nothing is blocked while the store fails, or if a [full store in
    /// memory](crate::memory#what-is-never-shared) has no room.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, Policy, Quota, Reason};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let policy = Policy::new("mails", Quota::per_day(100)).block_after(500, Duration::from_secs(3_600));
    /// let (mails, key) = (Limiter::new([policy]), Key::from("ada"));
    /// mails.block("mails", &key).await;
    /// assert_eq!(mails.check(&key, 1).await.unwrap_err().reason(), Reason::Blocked);
    /// assert!(mails.blocked("mails", &key).await.is_some());
    /// mails.unblock("mails", &key).await;
    /// assert!(mails.check(&key, 1).await.is_ok());
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Limiter::try_block`] would return an error.
    pub async fn block(&self, policy: &str, key: &Key) {
        or_panic(self.try_block(policy, key).await);
    }

    /// [`Limiter::block`] for a name that is known only at run time, such as that of a file.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`] if there is no policy of that name, and
    /// [`SetupError::NoBlocks`] if it blocks no keys.
    pub async fn try_block(&self, policy: &str, key: &Key) -> Result<(), SetupError> {
        self.live.in_force().block(policy, key).await
    }

    /// Lifts the block of `key`. What it has used stays, and so do denials that were counted since
    /// the block began.
    ///
    /// # Panics
    /// If [`Limiter::try_unblock`] would return an error.
    pub async fn unblock(&self, policy: &str, key: &Key) {
        or_panic(self.try_unblock(policy, key).await);
    }

    /// [`Limiter::unblock`] for a name that is known only at run time.
    ///
    /// # Errors
    /// Those of [`Limiter::try_block`].
    pub async fn try_unblock(&self, policy: &str, key: &Key) -> Result<(), SetupError> {
        self.live.in_force().unblock(policy, key).await
    }

    /// Returns for how much longer `key` is blocked. `None` if it is not, or if the store fails.
    ///
    /// # Panics
    /// If [`Limiter::try_blocked`] would return an error.
    pub async fn blocked(&self, policy: &str, key: &Key) -> Option<Duration> {
        or_panic(self.try_blocked(policy, key).await)
    }

    /// [`Limiter::blocked`] for a name that is known only at run time.
    ///
    /// # Errors
    /// Those of [`Limiter::try_block`].
    pub async fn try_blocked(&self, policy: &str, key: &Key) -> Result<Option<Duration>, SetupError> {
        self.live.in_force().blocked(policy, key).await
    }
}

/// If the rule is in [shadow](crate::Rule::shadow), these are about the blocks of its enforced
/// namesakes: in other processes, and here once it leaves the shadow. In shadow nothing is blocked.
impl<S: Store<Error: NeverFails>> RequestLimiter<S> {
    /// Blocks `key` now, by the rule with this name: see [`Limiter::block`].
    ///
    /// # Panics
    /// If [`RequestLimiter::try_block`] would return an error.
    pub async fn block(&self, policy: &str, key: &Key) {
        or_panic(self.try_block(policy, key).await);
    }

    /// [`RequestLimiter::block`] for rules that a file may rename or remove.
    ///
    /// # Errors
    /// Those of [`Limiter::try_block`].
    pub async fn try_block(&self, policy: &str, key: &Key) -> Result<(), SetupError> {
        self.live.in_force().block(policy, key).await
    }

    /// Lifts the block of `key`: see [`Limiter::unblock`].
    ///
    /// # Panics
    /// If [`RequestLimiter::try_unblock`] would return an error.
    pub async fn unblock(&self, policy: &str, key: &Key) {
        or_panic(self.try_unblock(policy, key).await);
    }

    /// [`RequestLimiter::unblock`] for rules that a file may rename or remove.
    ///
    /// # Errors
    /// Those of [`Limiter::try_block`].
    pub async fn try_unblock(&self, policy: &str, key: &Key) -> Result<(), SetupError> {
        self.live.in_force().unblock(policy, key).await
    }

    /// Returns for how much longer `key` is blocked: see [`Limiter::blocked`].
    ///
    /// # Panics
    /// If [`RequestLimiter::try_blocked`] would return an error.
    pub async fn blocked(&self, policy: &str, key: &Key) -> Option<Duration> {
        or_panic(self.try_blocked(policy, key).await)
    }

    /// [`RequestLimiter::blocked`] for rules that a file may rename or remove.
    ///
    /// # Errors
    /// Those of [`Limiter::try_block`].
    pub async fn try_blocked(&self, policy: &str, key: &Key) -> Result<Option<Duration>, SetupError> {
        self.live.in_force().blocked(policy, key).await
    }
}
