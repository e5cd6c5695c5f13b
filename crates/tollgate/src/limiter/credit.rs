//! Units that come back without a permit.

use tollgate_core::{Store, credit};

use super::{Limiter, Question};
use crate::errors::{SetupError, or_panic};
use crate::store::NeverFails;
use crate::time::ending::Home;

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Gives the units of a question back to its key, without a permit: to compensate a customer,
    /// or for units that are bought. Debt is paid first, then the newest units come back, and never
    /// more than were used. What is [tracked](crate::Policy::track_usage) of the key stays: the
    /// units were used.
    ///
    /// Credit by the [limit](Question::limit) by which the units were charged. A token bucket gives
    /// back the time that they take to refill: by another limit that is more or less, and of a
    /// bucket in debt nothing. By [`Limit::Unlimited`](crate::Limit::Unlimited) and
    /// [`Limit::Nothing`](crate::Limit::Nothing), and to the empty key, nothing comes back.
    ///
    /// Callers that a [cache of denials](crate::StoreExt::deny_cache) of another process refuses
    /// pass within a second. The credit goes on if the caller leaves. If the store fails, it is
    /// lost, unless [`keep_corrections`](crate::failure::Answering::keep_corrections) keeps it
    /// until the store answers. What may have been executed is not sent again.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let tokens = Limiter::new([Policy::new("tokens", Quota::per_day(1_000))]);
    /// let user = Key::from("ada");
    /// tokens.debit(("tokens", &user, 1_200)).await;
    /// tokens.credit(("tokens", &user, 500)).await;
    /// let left = tokens.look(&user).await.unwrap();
    /// assert_eq!(left.iter().next().unwrap().1.remaining(), 300);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Limiter::try_credit`] would return an error.
    pub async fn credit<'a>(&self, question: impl Into<Question<'a>>) {
        or_panic(self.try_credit(question).await);
    }

    /// [`Limiter::credit`] for names and limits that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`], [`SetupError::QuotaNotAllowed`] of the limit, and
    /// [`SetupError::NoDebt`] of requests in flight and of a leaky bucket, whose charges cannot be
    /// corrected. Nothing is given back then.
    pub async fn try_credit<'a>(&self, question: impl Into<Question<'a>>) -> Result<(), SetupError> {
        let (question, decider) = (question.into(), self.live.load_full());
        let Some(policy) = decider.corrects(&question)? else { return Ok(()) };
        let (policy, in_force) = (decider.plan().policy(&policy), &decider.in_force);
        let credit = || credit(&in_force.store, policy, question.key, question.cost);
        in_force.end(&Home::here(), credit).finish().await;
        Ok(())
    }
}
