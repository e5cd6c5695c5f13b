//! A decision as observers see it.

use std::time::Duration;

use tollgate_core::{Policy, Source};

use crate::plan::RuleNumber;

/// What one rule of a request decided: see
/// [`RateLimitLayer::observe`](crate::RateLimitLayer::observe).
///
/// Each request brings one decision for each rule that applies to it: none for a rule from which it
/// is exempt, and none if the layer is switched off. A request that is refused because it has no
/// key brings one, of the rule that needs the key. Its [`Charge`](crate::Charge) brings one more of
/// its own rule for each extension, and when it has ended. So does each [slot](crate::Slot) when it
/// comes back, and each [block](crate::Policy::block_after) when it starts or is dropped. A
/// decision contains no key and nothing else of the request.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    pub(super) policy: &'a Policy,
    /// The number of the rule.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "finds the handles of a policy"))]
    pub(super) rule: RuleNumber,
    pub(super) outcome: Outcome,
    pub(super) units: u64,
    pub(super) source: Source,
    pub(super) wait: Option<Duration>,
    pub(super) latency: Option<Duration>,
}

impl<'a> Decision<'a> {
    /// A decision for which no store was asked.
    pub(super) fn of_rule(policy: &'a Policy, rule: RuleNumber, outcome: Outcome) -> Decision<'a> {
        Decision { policy, rule, outcome, units: 0, source: Source::Rule, wait: None, latency: None }
    }

    /// Returns the policy. For a rule with [tiers](crate::Rule::tiers), it is the policy of the
    /// request's tier.
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns what the policy decided.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the units that the request costs, or that the [outcome](Decision::outcome) is about:
    /// settled, forgiven, unknown or released. 0 if the rule found no key, or if a block starts or
    /// is dropped.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns what decided. It is the same for all rules that applied to a request.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns how long a [delayed](Outcome::Delayed) request waits for its slot, or when a
    /// [denied](Outcome::Denied) or [blocked](Outcome::Blocked) one would pass. `None` for other
    /// outcomes, and if a failure policy decided.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// Returns the time from the call of the store to its answer, if the request waited for that.
    ///
    /// All rules of a request share one call, and only its first decision has the latency: a
    /// histogram counts each call once. `None` for an answer that was available at once, such as
    /// that of a store in memory.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }
}

/// What a policy decided about a request. Of the outcomes of all rules, the greatest up to
/// [`NoKey`](Outcome::NoKey) decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The units were charged, and the request passes.
    Allowed,
    /// The units were charged, and the request passes after a wait for its slot in a
    /// [leaky bucket](crate::Algorithm::LeakyBucket).
    Delayed,
    /// Another rule refused the request. This policy had room.
    NotCharged,
    /// The policy refused the request. If the store failed, and the failure policy refused it, the
    /// [source](Decision::source) is [`Source::FailurePolicy`]. If the limit of this caller is
    /// [nothing at all](crate::Limit::Nothing) or [not valid](crate::Reason::InvalidLimit), it is
    /// [`Source::Rule`].
    Denied,
    /// The key is [blocked](crate::Policy::block_after).
    Blocked,
    /// The request costs more than the policy can ever grant.
    NeverPossible,
    /// The rule found no key, or the server does not provide the peer's address. The request is
    /// refused.
    NoKey,
    /// A [`Charge`](crate::Charge) has ended: so many units stay charged. They were
    /// [`Allowed`](Outcome::Allowed) as an estimate before.
    Settled,
    /// A [`Charge`](crate::Charge) has ended: so many units were used, and no caller pays for them.
    Forgiven,
    /// A [`Charge`](crate::Charge) has ended: the store did not answer, so it is not known whether
    /// so many units are charged.
    Unknown,
    /// A request no longer holds its [slot](crate::Slot): it has ended, or gave it back before. It
    /// was [`Allowed`](Outcome::Allowed) before.
    Released,
    /// A block of a key [starts](crate::Policy::block_after), in this process. The request that
    /// started it was [`Denied`](Outcome::Denied) before.
    BlockStarted,
    /// A block of a key was to start, and did not: the [store in
    /// memory](crate::memory#what-is-never-shared) had no room for it, or the store failed. If that
    /// did not answer, the block may go on.
    BlockDropped,
    /// A rule in [shadow](crate::Rule::shadow) would let the request pass. It counted the units.
    ShadowAllowed,
    /// A rule in [shadow](crate::Rule::shadow) would refuse the request.
    ShadowDenied,
    /// A rule in [shadow](crate::Rule::shadow) did not decide: too many of its checks wait for the
    /// store, enforced checks went first for too long, or the store failed.
    ShadowDropped,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Outcome; 16] = [
        Outcome::Allowed,
        Outcome::Delayed,
        Outcome::NotCharged,
        Outcome::Denied,
        Outcome::Blocked,
        Outcome::NeverPossible,
        Outcome::NoKey,
        Outcome::Settled,
        Outcome::Forgiven,
        Outcome::Unknown,
        Outcome::Released,
        Outcome::BlockStarted,
        Outcome::BlockDropped,
        Outcome::ShadowAllowed,
        Outcome::ShadowDenied,
        Outcome::ShadowDropped,
    ];

    /// The outcome for a rule in shadow.
    pub(super) fn in_shadow(self) -> Outcome {
        match self {
            Outcome::Allowed | Outcome::Delayed => Outcome::ShadowAllowed,
            Outcome::Denied | Outcome::Blocked | Outcome::NeverPossible => Outcome::ShadowDenied,
            other => other,
        }
    }

    /// Whether only a rule in shadow has it.
    pub(super) fn is_shadow(self) -> bool {
        matches!(self, Outcome::ShadowAllowed | Outcome::ShadowDenied | Outcome::ShadowDropped)
    }

    /// The name in logs and metrics, such as `never-possible`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Delayed => "delayed",
            Outcome::NotCharged => "not-charged",
            Outcome::Denied => "denied",
            Outcome::Blocked => "blocked",
            Outcome::NeverPossible => "never-possible",
            Outcome::NoKey => "no-key",
            Outcome::Settled => "settled",
            Outcome::Forgiven => "forgiven",
            Outcome::Unknown => "unknown",
            Outcome::Released => "released",
            Outcome::BlockStarted => "block-started",
            Outcome::BlockDropped => "block-dropped",
            Outcome::ShadowAllowed => "shadow-allowed",
            Outcome::ShadowDenied => "shadow-denied",
            Outcome::ShadowDropped => "shadow-dropped",
        }
    }
}
