//! Random histories of one key, aimed at the microseconds where mistakes occur.
//!
//! [`check`] compares the answers of `tollgate-core` and of the [oracle](crate::oracle).

mod check;
pub(crate) mod used;

use std::time::Duration;

use tollgate_core::{Algorithm, Policy, Quota, Times, Timestamp};

use crate::random::Random;

pub use check::{check, longest_wait};
pub use used::Used;

/// A policy, a start time and a list of steps.
#[derive(Clone, Debug)]
pub struct History {
    /// The policy at the start.
    pub policy: Policy,
    /// The time at the start.
    pub start: Timestamp,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    /// Time passes.
    Advance(Span),
    /// The clock steps back by this many microseconds, as after a failover to another server.
    StepBack(u64),
    /// A request.
    Acquire {
        /// Units of each grant.
        cost: u64,
        /// How often to acquire.
        times: Times,
    },
    /// A refund of a grant.
    Refund {
        /// The index of the grant, counted from the latest.
        latest: usize,
        /// Units that are not refunded: 0 refunds the whole grant.
        short_by: u64,
    },
    /// Limit, burst or boundaries change.
    Change(Policy),
    /// A correction of the latest grants to what was used. They are not corrected again.
    Settle {
        /// The number of grants. With none, units were used that no grant was made for.
        grants: usize,
        /// The units that were used beyond the grants, or else left over.
        used: Used,
    },
    /// A look of another version of the policy, which rounds no state.
    LookAs(Policy),
    /// Units come back without a grant of them.
    Credit(u64),
}

/// A span of time. Most are relative to the last answer.
#[derive(Clone, Copy, Debug)]
pub enum Span {
    /// This many microseconds.
    Micros(u64),
    /// The last reported wait, less this many microseconds.
    LastWait(u64),
    /// The last reported reset, less this many microseconds.
    LastReset(u64),
    /// To the next multiple of window / `parts`, less `before`.
    Edge {
        /// The number of parts of the window.
        parts: u64,
        /// Microseconds before the edge.
        before: u64,
    },
}

/// What a random history may contain, in addition to requests, refunds and the passage of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// The clock steps back.
    pub step_back: bool,
    /// Limit, burst and boundaries change.
    pub change: bool,
    /// Grants are settled, also to more than was granted, units are credited, and another version
    /// of the policy looks.
    pub debt: bool,
}

impl History {
    /// Makes a history from random words: one for the policy, one for each step. Property tests can
    /// shrink a list of words without further help.
    pub fn of_words(algorithm: Algorithm, mix: Mix, words: &[u64]) -> History {
        let mut random = Random::new(words.first().copied().unwrap_or_default());
        let policy = random.policy("history", algorithm);
        let any = random.magnitude(0, 1 << 52);
        let close_to_the_end = (1 << 52) - random.magnitude(0, 1 << 50);
        let start = random.one_of(&[
            0,
            1,
            1_700_000_000_000_000,
            1_767_225_600_000_000 + any % 1_000_000_000,
            any,
            close_to_the_end,
        ]);
        let steps = words.iter().skip(1).map(|word| Step::of(*word, &policy, mix)).collect();
        History { policy, start: Timestamp::from_micros(start), steps }
    }
}

impl Step {
    fn of(word: u64, policy: &Policy, mix: Mix) -> Step {
        let mut random = Random::new(word);
        let span = random.magnitude(0, 1 << 46);
        match random.below(20) {
            12 if mix.debt => {
                let grants = usize::try_from(random.below(4)).unwrap_or(0);
                Step::Settle { grants, used: random.used(policy) }
            }
            13 if mix.debt => Step::LookAs(random.resized(policy)),
            14 if mix.debt => {
                let (one, most) = (random.cost(policy), policy.capacity());
                Step::Credit(random.one_of(&[one, one, most, 2 * most, 2 * most + 1]))
            }
            0..=6 => Step::Advance(Span::of(&mut random, policy)),
            7..=9 => {
                let short_by = if random.below(2) == 0 { 0 } else { random.magnitude(0, Quota::MAX_UNITS) };
                Step::Refund { latest: usize::try_from(random.below(4)).unwrap_or(0), short_by }
            }
            10 if mix.step_back => Step::StepBack(span),
            11 if mix.change => Step::Change(random.changed(policy)),
            _ => Step::Acquire { cost: random.cost(policy), times: random.times() },
        }
    }
}

impl Span {
    fn of(random: &mut Random, policy: &Policy) -> Span {
        let before = random.below(2);
        let buckets = match policy.algorithm() {
            Algorithm::SlidingBuckets { buckets } => u64::from(buckets),
            _ => 1,
        };
        match random.below(10) {
            0 => Span::Micros(1),
            1 => Span::Micros(micros(policy.quota().window()) / policy.quota().limit()),
            2 => Span::Micros(random.magnitude(0, micros(policy.quota().window()) * 2)),
            3 => Span::Micros(random.magnitude(0, 1 << 52)),
            4..=6 => Span::LastWait(before),
            7 => Span::LastReset(before),
            8 => Span::Edge { parts: 1, before },
            _ => Span::Edge { parts: buckets, before },
        }
    }

    pub(crate) fn after(self, now: Timestamp, policy: &Policy, last_wait: u64, last_reset: u64) -> Timestamp {
        let span = match self {
            Span::Micros(span) => span,
            Span::LastWait(less) => last_wait.saturating_sub(less),
            Span::LastReset(less) => last_reset.saturating_sub(less),
            Span::Edge { parts, before } => {
                let part = micros(policy.quota().window()).div_ceil(parts.max(1));
                (part - now.as_micros() % part).saturating_sub(before)
            }
        };
        now.saturating_add(Duration::from_micros(span))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
