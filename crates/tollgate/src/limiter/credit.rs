//! Units that come back without a permit.

use tollgate_core::{Key, Store, credit};

use super::Limiter;
use crate::errors::{SetupError, or_panic};
use crate::store::NeverFails;

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Gives `units` of one policy back to `key`, without a permit: to compensate a customer, or
    /// for units that are bought. Debt is paid first, then the newest units come back, and never
    /// more than were used. What is [tracked](crate::Policy::track_usage) of the key stays: the
    /// units were used.
    ///
    /// The units are those of the policy's own quota. A token bucket gives back the time that they
    /// take to refill: a key whose [limit](crate::Question::limit) is ten times as high gets ten
    /// times as many.
    ///
    /// Callers that a [cache of denials](crate::StoreExt::deny_cache) of another process refuses
    /// pass within a second. If the store fails, the credit is lost, unless
    /// [`keep_corrections`](crate::failure::Answering::keep_corrections) keeps it until the store
    /// answers. What may have been executed is not sent again.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let tokens = Limiter::new([Policy::new("tokens", Quota::per_day(1_000))]);
    /// let user = Key::from("ada");
    /// tokens.debit("tokens", &user, 1_200).await;
    /// tokens.credit("tokens", &user, 500).await;
    /// let left = tokens.look(&user).await.unwrap();
    /// assert_eq!(left.iter().next().unwrap().1.remaining(), 300);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Limiter::try_credit`] would return an error.
    pub async fn credit(&self, policy: &str, key: &Key, units: u64) {
        or_panic(self.try_credit(policy, key, units).await);
    }

    /// [`Limiter::credit`] for a name that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`], and [`SetupError::NoDebt`] of requests in flight and of a
    /// leaky bucket, whose charges cannot be corrected. Nothing is given back then.
    pub async fn try_credit(&self, policy: &str, key: &Key, units: u64) -> Result<(), SetupError> {
        let in_force = self.live.in_force();
        let credited = in_force.plan.own(in_force.plan.number_of(policy)?);
        if credited.numbers().with_debt().is_none() {
            return Err(SetupError::NoDebt(policy.to_owned()));
        }
        if !key.is_empty() {
            let Ok(()) = credit(&in_force.store, credited, key, units).await;
        }
        Ok(())
    }
}
