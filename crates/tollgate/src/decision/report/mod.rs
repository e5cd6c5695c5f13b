//! The report on the rules that applied to a request.

#[cfg(feature = "axum")]
mod extractor;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tollgate_core::{Policy, Share, Status, Verdict};

use crate::plan::{Plan, PolicyRef};

/// The state of the rules that applied to a request. Cheap to clone.
#[derive(Clone)]
pub struct Report(Arc<ReportInner>);

struct ReportInner {
    plan: Arc<Plan>,
    /// The policies that applied.
    asked: SmallVec<[PolicyRef; 4]>,
    verdict: Verdict,
}

impl Report {
    /// The report on these policies.
    pub(crate) fn new(
        plan: &Arc<Plan>,
        asked: impl IntoIterator<Item = PolicyRef>,
        verdict: Verdict,
    ) -> Report {
        let asked = asked.into_iter().collect();
        Report(Arc::new(ReportInner { plan: Arc::clone(plan), asked, verdict }))
    }

    /// Returns the policies that applied, in the order of their rules. For a rule with
    /// [tiers](crate::Rule::tiers), it is the policy of the request's tier.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.asked.iter().map(|policy| self.0.plan.policy(policy))
    }

    /// Returns the status of each of [`Report::policies`]. Empty if no store decided: the request
    /// had no key, or a failure policy decided.
    pub fn statuses(&self) -> &[Status] {
        self.0.verdict.each()
    }

    /// Returns the share of each quota that decided, if a
    /// [fallback](crate::StoreExt::fall_back_to) did.
    pub fn share(&self) -> Option<Share> {
        self.0.verdict.share()
    }

    /// Returns each policy with its status.
    pub fn iter(&self) -> impl Iterator<Item = (&Policy, &Status)> {
        self.policies().zip(self.statuses())
    }

    /// Returns the policy with this name and its status. If the key is also refused for a fixed
    /// time, after many denials, the status says for how long. `None` if it did not apply, or if no
    /// store decided.
    ///
    /// ```
    /// # use tollgate::Report;
    /// fn left_today(report: &Report) -> Option<u64> {
    ///     report.get("daily").map(|(_, status)| status.remaining())
    /// }
    /// ```
    pub fn get(&self, policy: &str) -> Option<(&Policy, &Status)> {
        let of_name = self.iter().filter(|(each, _)| each.name() == policy);
        of_name.reduce(|own, other| if other.1.wait() > own.1.wait() { other } else { own })
    }

    /// The set that decided.
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.0.plan
    }

    /// The problem document of a request that only the policy at this index refused.
    pub(crate) fn quota_exceeded(&self, at: usize) -> Option<&Bytes> {
        self.0.asked.get(at).map(|policy| self.0.plan.quota_exceeded(policy))
    }

    /// The policy that applied, at a place.
    pub(crate) fn asked(&self, at: usize) -> Option<&PolicyRef> {
        self.0.asked.get(at)
    }

    /// The first policy that applied.
    pub(crate) fn first(&self) -> Option<&PolicyRef> {
        self.asked(0)
    }

    pub(crate) fn verdict(&self) -> &Verdict {
        &self.0.verdict
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(policy, status)| (policy.name(), status))).finish()
    }
}
