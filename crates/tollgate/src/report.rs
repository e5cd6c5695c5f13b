//! How rules stand, for those who ask.

#[cfg(feature = "axum")]
mod extractor;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tollgate_core::{Policy, Share, Status, Verdict};

use crate::rule::{Asked, Rules};

#[cfg(feature = "axum")]
pub use extractor::MissingReport;

/// How the rules that applied to a request stand. Cheap to clone.
#[derive(Clone)]
pub struct Report(Arc<Told>);

struct Told {
    rules: Arc<Rules>,
    /// The numbers of the policies that applied.
    asked: Asked,
    verdict: Verdict,
}

impl Report {
    pub(crate) fn new(rules: &Arc<Rules>, asked: Asked, verdict: &Verdict) -> Report {
        Report(Arc::new(Told { rules: Arc::clone(rules), asked, verdict: verdict.clone() }))
    }

    /// Of a request in which this rule found no key: of its own policy, which has its number.
    pub(crate) fn without_key(rules: &Arc<Rules>, rule: usize) -> Report {
        let verdict = Verdict::new(0, Duration::ZERO, []);
        Report(Arc::new(Told { rules: Arc::clone(rules), asked: SmallVec::from_slice(&[rule]), verdict }))
    }

    /// The policies that applied, in the order of their rules. Of a rule with [tiers](crate::Rule::tiers), the policy of the
    /// request's tier.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.asked.iter().map(|policy| self.0.rules.policy(*policy))
    }

    /// The status of each of [`Report::policies`]. Empty if no store was asked: for want of a key, or by a failure
    /// policy.
    pub fn statuses(&self) -> &[Status] {
        self.0.verdict.each()
    }

    /// The share of each quota that the statuses are of, where a [fallback](crate::FailureExt::fall_back_to) decided.
    pub fn share(&self) -> Option<Share> {
        self.0.verdict.share()
    }

    /// Each policy with its status.
    pub fn iter(&self) -> impl Iterator<Item = (&Policy, &Status)> {
        self.policies().zip(self.statuses())
    }

    /// The policy of that name, and its status; `None` if it did not apply, or if no store was asked.
    ///
    /// ```
    /// # use tollgate::Report;
    /// fn left_today(report: &Report) -> Option<u32> {
    ///     report.get("daily").map(|(_, status)| status.remaining())
    /// }
    /// ```
    pub fn get(&self, policy: &str) -> Option<(&Policy, &Status)> {
        self.iter().find(|(each, _)| each.name() == policy)
    }

    /// The problem document of a request that only the `at`th of these policies refused.
    pub(crate) fn quota_exceeded(&self, at: usize) -> Option<&Bytes> {
        self.0.asked.get(at).map(|policy| self.0.rules.quota_exceeded(*policy))
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
