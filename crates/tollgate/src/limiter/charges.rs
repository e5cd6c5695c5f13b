//! What a permit charged, in the hands of its holder.

use tollgate_core::{Key, Settled};

use super::Permit;
use crate::charge::{Charge, Corrected, ResponseHead, settle_all};
use crate::decision::GrantStamp;
use crate::errors::{SetupError, or_panic};
use crate::plan::{Ask, RuleNumber};

impl Permit {
    /// Takes what one policy charged, for work whose cost is known only at its end: see [`Charge`].
    /// The other policies keep what they charged, and a [refund](Permit::refund) leaves this one
    /// out. A rule that did not apply to the request, or is in shadow, charged nothing. On a
    /// [leased](crate::StoreExt::leased) store, make the policy
    /// [`reserved`](crate::Policy::reserved).
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
    /// let tokens = Limiter::new([Policy::new("tokens", Quota::per_minute(1_000))]);
    /// let user = Key::from("ada");
    ///
    /// let mut permit = tokens.check(&user, 500).await?;
    /// let charge = permit.charge("tokens");
    /// // The work, which uses less.
    /// charge.settle(137).await;
    /// assert_eq!(tokens.look(&user).await?.statuses()[0].remaining(), 863);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If no rule that decided about the permit has a policy of that name.
    #[track_caller]
    pub fn charge(&mut self, policy: &str) -> Charge {
        or_panic(self.try_charge(policy))
    }

    /// [`Permit::charge`] for a name that is known only at run time, or that a file may rename.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`]. The permit keeps all charges then.
    pub fn try_charge(&mut self, policy: &str) -> Result<Charge, SetupError> {
        let rule = self.in_force.plan.number_of(policy)?;
        Ok(match self.take(rule) {
            Some((ask, granted)) => Charge::new(&self.in_force, ask, granted),
            None => Charge::without_key(&self.in_force, rule),
        })
    }

    /// [Settles](Charge::settle) several policies at once, each to the total of its units that the
    /// work has used. A store over a network gets one call for all, or one for each node of a
    /// Cluster. Returns what became of each, in the order of the totals. The other policies keep
    /// what they charged.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
    /// let tokens = Limiter::new([
    ///     Policy::new("tpm", Quota::per_minute(1_000)),
    ///     Policy::new("tpd", Quota::per_day(20_000)),
    /// ]);
    /// let user = Key::from("ada");
    ///
    /// let mut permit = tokens.check(&user, 500).await?;
    /// // The work, which uses less.
    /// let settled = permit.settle_each(&[("tpm", 137), ("tpd", 137)]).await;
    /// assert_eq!((settled[0].charged, settled[1].charged), (137, 137));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Permit::try_settle_each`] would return an error.
    pub async fn settle_each(&mut self, totals: &[(&str, u64)]) -> Vec<Settled> {
        or_panic(self.try_settle_each(totals).await)
    }

    /// [`Permit::settle_each`] for names that are known only at run time, or that a file may
    /// rename.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`], and [`SetupError::AskedTwice`] if a policy is named twice.
    /// The permit keeps all charges then.
    pub async fn try_settle_each(&mut self, totals: &[(&str, u64)]) -> Result<Vec<Settled>, SetupError> {
        for (at, (name, _)) in totals.iter().enumerate() {
            self.in_force.plan.number_of(name)?;
            if totals[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(SetupError::AskedTwice((*name).to_owned()));
            }
        }
        let charges = totals.iter().map(|(name, total)| Ok((self.try_charge(name)?, *total)));
        Ok(settle_all(charges.collect::<Result<_, SetupError>>()?).await)
    }

    /// Settles it by the response that its request got: what [`Rule::count_if`] and
    /// [`Rule::cost_by`] say. Other rules keep what they charged, and what was taken out is not
    /// settled again. Slots are released after that. A layer does this by itself.
    ///
    /// [`Rule::count_if`]: crate::Rule::count_if
    /// [`Rule::cost_by`]: crate::Rule::cost_by
    pub fn settle_by(self, response: &ResponseHead<'_>) {
        let granted = |at| GrantStamp::of(self.report.verdict(), at);
        let charges = Corrected::open(&self.in_force, &self.asks, granted);
        let corrections = charges.by_response.settle_by(response);
        self.release_after(corrections);
    }

    /// Takes what a rule charged, once, with what a store granted: `None` for that if a failure
    /// policy decided.
    fn take(&mut self, rule: RuleNumber) -> Option<(Ask, Option<GrantStamp>)> {
        let is_it = |ask: &Ask| self.in_force.plan.rule_of(&ask.policy) == rule && self.charges(ask);
        let at = self.asks.iter().position(is_it)?;
        let taken = self.asks[at].clone();
        self.asks[at].key = Key::from("");
        Some((taken, GrantStamp::of(self.report.verdict(), at)))
    }
}
