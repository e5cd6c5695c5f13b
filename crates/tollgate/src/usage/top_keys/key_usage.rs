//! How often a key was allowed or denied.

/// How often a key was allowed or denied under a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyUsage {
    /// The name of the policy.
    pub policy: String,
    /// The key as the log names it: the text of [`Key::to_text`](tollgate_core::Key::to_text), or a
    /// digest. For people, parse it and write it with
    /// [`Key::to_readable`](tollgate_core::Key::to_readable).
    pub key: String,
    /// The decisions that were counted.
    pub count: u64,
    /// The least that the true count can be, with five standard deviations if it was sampled.
    pub at_least: u64,
    /// The most that the true count can be, with five standard deviations if it was sampled.
    pub at_most: u64,
}
