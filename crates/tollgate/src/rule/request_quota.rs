//! Quotas that requests bring along, such as in a token.

use std::sync::Arc;

use tollgate_core::{Key, Policy, Quota};

use super::{IntoLimit, Limit, Rule};
use crate::errors::Reason;
use crate::extract::Head;

/// The closure that finds the limit of a request.
pub(super) type RequestLimit = dyn Fn(&Head<'_>, &Key) -> Result<Limit, Reason> + Send + Sync;

impl Rule {
    /// Takes the limit of a request from the request: from the claims of a token, or from what an
    /// authentication layer knows. The closure sees the request and its key, and returns a
    /// [`Limit`] or a quota, or an option or a result of these. With `None` the rule's own quota
    /// applies, or that of its [tier](Rule::tiers).
    ///
    /// **Nothing is unlimited by mistake**, only [`Limit::Unlimited`] is. A request is refused with
    /// [`Reason::InvalidLimit`], status 500, and nothing is charged:
    ///
    /// - if the closure returns an error;
    /// - if the quota has another window than the policy, or the algorithm or the store does not
    ///   allow it.
    ///
    /// There may be any number of different quotas. The policies of about 4,000 that were used
    /// lately are kept for each rule, so that others cost a little more.
    ///
    /// A [class](Rule::leaving) leaves its units of each quota, but at most all but one.
    ///
    /// **Callers choose a quota that is read from a header**, unless an outer layer has checked it.
    ///
    /// All quotas share the state of a key. A caller whose quota changes keeps its usage, as with
    /// [tiers](Rule::tiers): a token bucket for at most four quotas at a time. A quota for
    /// [requests in flight](Policy::in_flight) has the time to live of the policy.
    ///
    /// ```
    /// use tollgate::extract::extension;
    /// use tollgate::{Head, Key, Limit, Policy, PolicyExt, Quota};
    ///
    /// // Inserted into the extensions by a layer that has verified the token.
    /// #[derive(Clone)]
    /// struct Claims { user: u64, limit: String }
    ///
    /// let rule = Policy::new("api", Quota::per_minute(60))
    ///     .by(extension(|claims: &Claims| Key::from(claims.user)))
    ///     .quota(|head: &Head<'_>, _: &Key| {
    ///         let claims = head.extensions().get::<Claims>();
    ///         // Such as `100/min`, `unlimited` or `none`.
    ///         claims.map(|claims| claims.limit.parse::<Limit>())
    ///     });
    /// ```
    ///
    /// Each call replaces the closure of the call before.
    pub fn quota<L: IntoLimit>(
        mut self,
        quota: impl Fn(&Head<'_>, &Key) -> L + Send + Sync + 'static,
    ) -> Rule {
        self.limit = Some(Arc::new(move |head, key| quota(head, key).into_limit()));
        self
    }

    /// The limit that a request brings.
    pub(crate) fn limit_of(&self, head: &Head<'_>, key: &Key) -> Result<Limit, Reason> {
        self.limit.as_ref().map_or(Ok(Limit::Own), |limit| limit(head, key))
    }

    /// The policy of a request with this quota. `None` if the rule does not allow it.
    pub(crate) fn with_quota(&self, quota: Quota, leaves: u64) -> Option<Policy> {
        let own = &self.policy;
        let quota = match own.ttl() {
            Some(ttl) => Quota::try_new(quota.limit(), ttl).ok()?,
            None if quota.window() == own.quota().window() => quota,
            None => return None,
        };
        let policy = own.try_with_quota(quota).ok()?;
        if policy.numbers().is_reserved() && policy.numbers().with_debt().is_none() {
            return None;
        }
        // Otherwise a class could escape a small quota to the rule's own.
        match leaves.min(policy.capacity() - 1) {
            0 => Some(policy),
            leaves => policy.leaving(leaves).ok(),
        }
    }
}
