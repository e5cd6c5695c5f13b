//! Charges of what was used without asking.

use tollgate_core::{Settled, Store};

use super::{Limiter, Question};
use crate::charge::Charge;
use crate::errors::{SetupError, or_panic};
use crate::store::NeverFails;

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Charges the units of a question without asking it: for what was used already, such as work
    /// that another service reports. Where nothing is left it is [debt](Settled::debt), up to one
    /// more capacity, which later requests wait for. The capacity is that of the question's
    /// [limit](Question::limit). By [`Limit::Unlimited`](crate::Limit::Unlimited) and
    /// [`Limit::Nothing`](crate::Limit::Nothing), and to the empty key, nothing is charged: all is
    /// [forgiven](Settled::forgiven).
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Question, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let tokens = Limiter::new([Policy::new("tokens", Quota::per_hour(1_000))]);
    /// let (ada, acme) = (Key::from("ada"), Key::from("acme"));
    /// let settled = tokens.debit(("tokens", &ada, 1_200)).await;
    /// assert_eq!((settled.charged, settled.debt), (1_200, 200));
    /// assert!(tokens.check(&ada, 1).await.is_err());
    ///
    /// let row = Quota::per_hour(5_000);
    /// let settled = tokens.debit(Question::new("tokens", &acme, 1_200).limit(row)).await;
    /// assert_eq!((settled.charged, settled.debt), (1_200, 0));
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Limiter::try_debit`] would return an error.
    pub async fn debit<'a>(&self, question: impl Into<Question<'a>>) -> Settled {
        or_panic(self.try_debit(question).await)
    }

    /// [`Limiter::debit`] for names and limits that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`], [`SetupError::QuotaNotAllowed`] of the limit, and
    /// [`SetupError::NoDebt`] of requests in flight and of a leaky bucket. Nothing is charged then.
    pub async fn try_debit<'a>(&self, question: impl Into<Question<'a>>) -> Result<Settled, SetupError> {
        let (question, decider) = (question.into(), self.live.load_full());
        let Some(policy) = decider.corrects(&question)? else {
            return Ok(Settled { forgiven: question.cost, ..Settled::default() });
        };
        let charge = Charge::of_nothing(&decider.in_force, policy, question.key);
        Ok(charge.settle(question.cost).await)
    }
}
