//! How much a key used recently.

use std::time::Duration;

use tollgate_core::{Key, Store, UsageError};

use super::Limiter;

impl<S: Store> Limiter<S> {
    /// Returns how many units `key` used of the policy with this name in the last `interval`, in
    /// all of its tiers. Denied requests do not count. Charges nothing.
    ///
    /// The policy has to store when requests came. A [`SlidingLog`](crate::Algorithm::SlidingLog)
    /// counts exactly, and [`SlidingBuckets`](crate::Algorithm::SlidingBuckets) to the precision of
    /// a sub-window. Neither stores more than one window: see [`Store::usage`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::extract::header;
    /// use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, PolicyExt, Quota, Timestamp};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let time = ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000));
    /// let logins = Policy::new("logins", Quota::per_hour(10)).with_algorithm(Algorithm::SLIDING_LOG);
    /// let mails = Policy::new("mails", Quota::per_day(100));
    /// let limiter = Limiter::new([logins.by(header("x-user")), mails.by(header("x-user"))])
    ///     .store(MemoryStore::builder().clock(&time).build());
    /// let user = Key::from("ada");
    /// for _ in 0..3 {
    ///     let _ = limiter.check_key(&user, 1).await?;
    ///     time.advance(Duration::from_secs(10));
    /// }
    /// assert_eq!(limiter.usage("logins", &user, Duration::from_secs(25)).await?, 2);
    ///
    /// let error = limiter.usage("mails", &user, Duration::from_secs(25)).await.unwrap_err();
    /// assert_eq!(error.to_string(), "gcra stores no times of requests: use sliding-buckets or sliding-log");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`UsageError::UnknownPolicy`] if no rule has a policy of this name.
    /// - [`UsageError::Algorithm`] if the policy has another algorithm.
    /// - [`UsageError::Store`] if the store does not answer. A failure policy does not replace that
    ///   error.
    /// - [`UsageError::Unsupported`] if the store has no [`Store::usage`].
    pub async fn usage(&self, policy: &str, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        let mut units = None;
        for policy in self.rules.policies_with_states().filter(|known| known.name() == policy) {
            let of_tiers = self.store.usage(policy, key, interval).await?;
            units = Some(of_tiers + units.unwrap_or(0));
        }
        units.ok_or_else(|| UsageError::UnknownPolicy(policy.to_owned()))
    }
}
