//! How keys are blocked: by themselves after many denials, and by operators.

use std::time::Duration;

use tollgate_core::{Check, Grant, Key, Policy, Share, Stamp, Store, Times, Wait};

use super::background::in_background;
use super::decider::Decider;
use super::never_fails::NeverFails;
use super::{Limiter, RequestLimiter};
use crate::denial::Denial;
use crate::policy_set::Ask;
use crate::reason::Reason;

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Counts a denial that a caller gets, and blocks the key if it was one too many.
    pub(crate) fn count(&self, denial: &Denial, asks: &[Ask]) {
        let Some(counts) = &self.denials else { return };
        // A block that goes on is no new denial.
        if denial.reason() != Reason::QuotaExceeded {
            return;
        }
        for ask in denial.violated_at().filter_map(|at| asks.get(at)) {
            let rule = self.policies.named(&ask.policy);
            if counts.count(self.policies.numbered(rule), &ask.key) {
                self.start_soon(rule, ask.key.clone(), denial.report().share());
            }
        }
    }

    /// Starts a block by a rule in the store that denied. No caller waits for it.
    fn start_soon(&self, rule: usize, key: Key, share: Option<Share>) {
        let decider = self.clone();
        in_background(Box::pin(async move { decider.start(rule, &key, share).await }));
    }

    /// Starts a block by a rule, which must block keys. Observers see it, unless one goes on.
    async fn start(&self, rule: usize, key: &Key, share: Option<Share>) {
        let Some(block) = self.policies.block_of(rule) else { return };
        // A block starts by one unit that no grant has paid.
        let nothing = Grant { policy: block, key, units: 0, stamp: Stamp::default(), share };
        let settled = self.store.settle(&[nothing], 1).await.unwrap_or_else(NeverFails::never);
        // What is charged while a block goes on is debt.
        if settled.charged > settled.debt {
            self.observers.block_started(&self.policies, rule);
        }
    }

    /// The policy that refuses blocked keys of the policy with this name.
    fn block_named(&self, policy: &str) -> &Policy {
        let block = self.policies.block_of(self.policies.number_of(policy));
        block.unwrap_or_else(|| panic!("the policy {policy:?} blocks no keys: see `block_after`"))
    }

    async fn block(&self, policy: &str, key: &Key) {
        self.block_named(policy);
        self.start(self.policies.number_of(policy), key, None).await;
    }

    async fn unblock(&self, policy: &str, key: &Key) {
        let block = self.block_named(policy);
        self.store.reset(key, &[block]).wait().await.unwrap_or_else(NeverFails::never);
    }

    async fn blocked(&self, policy: &str, key: &Key) -> Option<Duration> {
        let check = Check::new(self.block_named(policy), key, 1);
        let verdict = self.store.acquire(&[check], Times::LOOK).wait().await;
        match verdict.unwrap_or_else(NeverFails::never).wait() {
            Wait::For(wait) => Some(wait),
            Wait::None | Wait::Never => None,
        }
    }
}

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Blocks `key` now, for the time of [`Policy::block_after`]. A block that goes on ends when it
    /// would have: [lift](Limiter::unblock) it first to start it again. Nothing is blocked while
    /// the store fails.
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
    /// If there is no policy of that name, or if it blocks no keys.
    pub async fn block(&self, policy: &str, key: &Key) {
        self.decider.block(policy, key).await;
    }

    /// Lifts the block of `key`. What it has used stays, and so do denials that were counted since
    /// the block began.
    ///
    /// # Panics
    /// If there is no policy of that name, or if it blocks no keys.
    pub async fn unblock(&self, policy: &str, key: &Key) {
        self.decider.unblock(policy, key).await;
    }

    /// Returns for how much longer `key` is blocked. `None` if it is not, or if the store fails.
    ///
    /// # Panics
    /// If there is no policy of that name, or if it blocks no keys.
    pub async fn blocked(&self, policy: &str, key: &Key) -> Option<Duration> {
        self.decider.blocked(policy, key).await
    }
}

impl<S: Store<Error: NeverFails>> RequestLimiter<S> {
    /// Blocks `key` now, by the rule with this name: see [`Limiter::block`], also for panics.
    pub async fn block(&self, policy: &str, key: &Key) {
        self.decider.block(policy, key).await;
    }

    /// Lifts the block of `key`: see [`Limiter::unblock`], also for panics.
    pub async fn unblock(&self, policy: &str, key: &Key) {
        self.decider.unblock(policy, key).await;
    }

    /// Returns for how much longer `key` is blocked: see [`Limiter::blocked`], also for panics.
    pub async fn blocked(&self, policy: &str, key: &Key) -> Option<Duration> {
        self.decider.blocked(policy, key).await
    }
}
