//! Rules in shadow: they decide, and nothing follows.

use super::Rule;
use crate::errors::SetupError;

impl Rule {
    /// Puts the rule in shadow: it decides about each request that the other rules let pass, and
    /// nothing follows. Observers, [metrics](crate::RateLimitLayer::metrics) and the
    /// [usage](crate::usage) of the store show what it would refuse, before it bites.
    ///
    /// It changes no answer, no field, and no charge, block or slot of another rule, also of a rule
    /// with its name that another layer or process enforces. All that it counts is apart: without
    /// the shadow the rule starts again.
    ///
    /// - Its outcomes are [`ShadowAllowed`](crate::Outcome::ShadowAllowed) and
    ///   [`ShadowDenied`](crate::Outcome::ShadowDenied). What it would refuse is not charged.
    /// - Several rules in shadow decide each by itself.
    /// - A [block](Rule::block_after) that it would start blocks in shadow only.
    /// - Its key extractor and its other closures run within the request.
    /// - No request waits for its store. A limiter has 1,024 of its checks on the way at most.
    ///   Others are [dropped](crate::Outcome::ShadowDropped). So is a check that Redis is not sent
    ///   within 50 ms because enforced checks go first. So is one whose store fails, and one over a
    ///   network without a tokio runtime.
    /// - A [`MemoryStore`](crate::MemoryStore) has a table of its own for such rules, with as many
    ///   keys at most. **In Redis its keys take memory of the same server**: if that is
    ///   [full](https://redis.io/docs/latest/develop/reference/eviction/), they can push out keys
    ///   of enforced rules.
    /// - [`Store::in_shadow`](crate::store::Store::in_shadow) returns the store that has its state,
    ///   to ask what its keys have used.
    ///
    /// A layer may have rules in shadow only. A rule of [requests in
    /// flight](crate::Policy::in_flight), or one that corrects its charges after the work, cannot
    /// be in shadow: [`SetupError::NotInShadow`].
    ///
    /// ```
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Outcome, Policy, PolicyExt, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new([
    ///     Policy::new("api", Quota::per_minute(600)).by(PeerIp::new()),
    ///     // What would it refuse?
    ///     Policy::new("stricter", Quota::per_minute(60)).by(PeerIp::new()).shadow(),
    /// ])
    /// .observe(|decision| {
    ///     if decision.outcome() == Outcome::ShadowDenied {
    ///         println!("{} would refuse a request", decision.policy().name());
    ///     }
    /// });
    /// ```
    #[doc(alias("dry_run", "report_only"))]
    pub fn shadow(self) -> Rule {
        Rule { is_shadow: true, ..self }
    }

    /// What a file says as `mode`. `None` for the default.
    #[cfg(feature = "config")]
    pub(crate) fn mode(&self) -> Option<&'static str> {
        self.is_shadow().then_some("shadow")
    }

    /// Checks that a rule in shadow needs nothing that follows a decision.
    pub(super) fn check_shadow(&self) -> Result<(), SetupError> {
        let follows = self.policy().is_in_flight() || self.policy().numbers().is_reserved();
        match self.is_shadow() && follows {
            true => Err(SetupError::NotInShadow(self.policy().name().to_owned())),
            false => Ok(()),
        }
    }
}
