//! Rules whose charges are corrected after the work.

use std::sync::Arc;

use tollgate_core::{Policy, Share};

use super::Rule;
use super::response_head::{OfResponse, ResponseHead};
use super::tiers::Tiers;
use crate::errors::SetupError;
use crate::extract::Head;

/// How a rule corrects its charges.
#[derive(Clone, Default)]
pub(super) struct Settling {
    /// Whether handlers get a charge.
    reserves: bool,
    /// The largest estimate.
    at_most: Option<Share>,
    of_response: Option<Arc<OfResponse>>,
}

impl Rule {
    /// Charges an estimate before the work. The handler corrects it by a [`Charge`](crate::Charge),
    /// in both directions, once the cost is known. The closure takes the place of
    /// [`cost`](Rule::cost).
    ///
    /// Estimate what a usual request takes. A low estimate lets requests in flight use more than
    /// the quota: what they owe is [debt](crate::store::Settled::debt), up to one more capacity. A
    /// high one refuses requests that would fit, until it is settled. An estimate of 0 counts as 1,
    /// so that a caller in debt does not pass.
    ///
    /// If no handler takes the charge, the estimate stays. With [`count_if`](Rule::count_if), a
    /// response that does not count refunds it, such as a 400 or a 404.
    ///
    /// ```
    /// use tollgate::extract::header;
    /// use tollgate::{Head, Policy, PolicyExt, Quota, RateLimitLayer, Share};
    ///
    /// // A model that is asked for at most so many tokens.
    /// let asked_for = |head: &Head<'_>| {
    ///     let tokens = head.headers().get("x-max-tokens").and_then(|tokens| tokens.to_str().ok());
    ///     tokens.and_then(|tokens| tokens.parse().ok()).unwrap_or(1_000)
    /// };
    /// let layer = RateLimitLayer::new([
    ///     Policy::new("requests", Quota::per_minute(60)).by(header("x-api-key")),
    ///     Policy::new("tokens", Quota::per_minute(10_000))
    ///         .by(header("x-api-key"))
    ///         .reserve(asked_for)
    ///         .reserve_at_most(Share::new(1, 2)),
    /// ]);
    /// ```
    ///
    /// The policy of such a rule is [reserved](Policy::reserved): no time to live holds its units.
    pub fn reserve(self, estimate: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Rule {
        let mut rule = self.cost(estimate).corrected();
        rule.settling.reserves = true;
        rule
    }

    /// Bounds the estimate of [`reserve`](Rule::reserve) to a share of the capacity, so that a
    /// caller with a small quota is not refused for ever. What its work uses beyond that is
    /// [debt](crate::store::Settled::debt).
    pub fn reserve_at_most(mut self, share: Share) -> Rule {
        self.settling.at_most = Some(share);
        self
    }

    /// Counts only requests whose response fulfils a condition, such as failed log-ins. Each
    /// request is charged before the work, so concurrent ones cannot pass the limit together, and
    /// refunded if the condition is false.
    ///
    /// If the service fails, or the caller leaves before the response, the charge stays. Of a gRPC
    /// call, the condition sees the status in the trailers, when it has ended.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Policy, PolicyExt, Quota};
    ///
    /// let failures = Policy::new("failures", Quota::per_hour(5))
    ///     .by(PeerIp::new())
    ///     .count_if(|response| response.status() == StatusCode::UNAUTHORIZED);
    /// ```
    ///
    /// It takes the place of [`cost_by`](Rule::cost_by).
    pub fn count_if(self, counts: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static) -> Rule {
        self.settled_by(move |response| (!counts(response)).then_some(0))
    }

    /// Settles each request to what its response says it has cost, such as the tokens in a header.
    /// The [cost](Rule::cost) or the [estimate](Rule::reserve) is charged before the work.
    ///
    /// A cost of 0 counts as 1, so that a caller in debt does not pass. If the service fails, or
    /// the caller leaves before the response, the charge stays. A handler that settles its
    /// [`Charge`](crate::Charge) comes first.
    ///
    /// ```
    /// use tollgate::extract::header;
    /// use tollgate::charge::ResponseHead;
    /// use tollgate::{Policy, PolicyExt, Quota};
    ///
    /// let used = |response: &ResponseHead<'_>| {
    ///     let tokens = response.headers().get("x-tokens-used").and_then(|tokens| tokens.to_str().ok());
    ///     tokens.and_then(|tokens| tokens.parse().ok()).unwrap_or(500)
    /// };
    /// let tokens = Policy::new("tokens", Quota::per_minute(10_000))
    ///     .by(header("x-api-key"))
    ///     .cost(|_| 500)
    ///     .cost_by(used);
    /// ```
    ///
    /// It takes the place of [`count_if`](Rule::count_if).
    pub fn cost_by(self, cost: impl Fn(&ResponseHead<'_>) -> u64 + Send + Sync + 'static) -> Rule {
        self.settled_by(move |response| Some(cost(response)))
    }

    fn settled_by(self, total: impl Fn(&ResponseHead<'_>) -> Option<u64> + Send + Sync + 'static) -> Rule {
        let mut rule = self.corrected();
        rule.settling.of_response = Some(Arc::new(total));
        rule
    }

    /// Marks its policies, so that no time to live holds their units.
    fn corrected(mut self) -> Rule {
        self.policy = self.policy.reserved();
        self.tiers = self.tiers.map(Tiers::reserved);
        self
    }

    /// Whether handlers get a charge of this rule.
    pub(crate) fn reserves(&self) -> bool {
        self.settling.reserves
    }

    /// What settles the charges of this rule by the response.
    pub(crate) fn of_response(&self) -> Option<&Arc<OfResponse>> {
        self.settling.of_response.as_ref()
    }

    /// Checks whether its charges can be corrected.
    pub(super) fn check_settling(&self) -> Result<(), SetupError> {
        let name = || self.policy.name().to_owned();
        if self.settling.at_most.is_some() && !self.settling.reserves {
            return Err(SetupError::NothingReserved(name()));
        }
        let owes =
            |policy: &Policy| !policy.numbers().is_reserved() || policy.numbers().with_debt().is_some();
        let owes_all = owes(&self.policy) && self.tiers_policies().iter().all(owes);
        if owes_all { Ok(()) } else { Err(SetupError::NoDebt(name())) }
    }
}

impl Settling {
    /// The estimate under a policy. At least 1 if it is corrected: a cost of 0 passes whatever is
    /// owed.
    pub(super) fn estimate(&self, cost: u64, policy: &Policy) -> u64 {
        if !self.reserves && self.of_response.is_none() {
            return cost;
        }
        let most = self.at_most.map_or(u64::MAX, |share| share.of_units(policy.capacity()));
        cost.min(most).max(1)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Quota;

    use super::*;
    use crate::extract::global;
    use crate::rule::PolicyExt;

    #[test]
    fn only_what_is_corrected_costs_at_least_one_unit() {
        let rule = Policy::new("tokens", Quota::per_minute(10)).reserved().by(global()).cost(|_| 0);
        let request = http::Request::new(());
        let cost = |rule: &Rule| rule.cost_of(&Head::from(&request), rule.policy());
        assert_eq!(cost(&rule), 0, "the policy is that of a limiter which settles");
        assert_eq!((cost(&rule.clone().count_if(|_| true)), cost(&rule.reserve(|_| 0))), (1, 1));
    }
}
