//! Charges of what was used without asking.

use tollgate_core::{Key, Settled, Store};

use super::Limiter;
use crate::charge::Charge;
use crate::errors::{SetupError, or_panic};
use crate::store::NeverFails;

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Charges `units` of one policy to `key` without asking: for what was used already, such as
    /// work that another service reports. Where nothing is left it is [debt](Settled::debt), up to
    /// one more capacity, which later requests wait for. Units and capacity are those of the
    /// policy's own quota, as in [`Limiter::credit`].
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let tokens = Limiter::new([Policy::new("tokens", Quota::per_hour(1_000))]);
    /// let user = Key::from("ada");
    /// let settled = tokens.debit("tokens", &user, 1_200).await;
    /// assert_eq!((settled.charged, settled.debt), (1_200, 200));
    /// assert!(tokens.check(&user, 1).await.is_err());
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Limiter::try_debit`] would return an error.
    pub async fn debit(&self, policy: &str, key: &Key, units: u64) -> Settled {
        or_panic(self.try_debit(policy, key, units).await)
    }

    /// [`Limiter::debit`] for a name that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`], and [`SetupError::NoDebt`] of requests in flight and of a
    /// leaky bucket. Nothing is charged then.
    pub async fn try_debit(&self, policy: &str, key: &Key, units: u64) -> Result<Settled, SetupError> {
        let charge = Charge::of_nothing(&self.live.in_force(), policy, key)?;
        Ok(charge.settle(units).await)
    }
}
