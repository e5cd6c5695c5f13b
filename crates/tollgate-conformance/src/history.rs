//! Random histories: what callers may do to one key, aimed at the microseconds around which mistakes live.
//!
//! [`check`] runs the algorithms of `tollgate-core` beside the [oracle](crate::oracle) and compares every answer.

mod check;

use std::time::Duration;

use tollgate_core::{Algorithm, Policy, Times, Timestamp};

use crate::random::Random;

pub use check::{check, longest_wait};

/// A policy, a beginning, and what happens then.
#[derive(Clone, Debug)]
pub struct History {
    /// The policy at the start.
    pub policy: Policy,
    /// The time at the start.
    pub start: Timestamp,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Step {
    /// Time passes.
    Advance(Span),
    /// The clock steps back by so many microseconds: another server took over.
    StepBack(u64),
    /// Somebody asks.
    Acquire {
        /// Units each time.
        cost: u32,
        /// How often.
        times: Times,
    },
    /// A grant comes back.
    Refund {
        /// Which, counted from the latest.
        latest: usize,
        /// How much of it stays away: 0 gives all back.
        short_by: u32,
    },
    /// From now on the limit or the burst is another.
    Change(Policy),
}

/// A span of time, most of them relative to what was told last.
#[derive(Clone, Copy, Debug)]
pub enum Span {
    /// So many microseconds.
    Micros(u64),
    /// The wait that was told last, less so many microseconds.
    ToldWait(u64),
    /// The reset that was told last, less so many microseconds.
    ToldReset(u64),
    /// To the next multiple of window / `parts`, less so many microseconds.
    Edge {
        /// Into how many parts the window is cut.
        parts: u64,
        /// Microseconds before the edge.
        before: u64,
    },
}

/// What a random history may contain beside requests, refunds and the passage of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// The clock steps back.
    pub step_back: bool,
    /// Limit and burst change.
    pub change: bool,
}

impl History {
    /// The history that `words` spell: one for the policy, one for each step. Made for property tests, which shrink a
    /// list of words by themselves.
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
            0..=6 => Step::Advance(Span::of(&mut random, policy)),
            7..=9 => {
                let short_by = if random.below(2) == 0 { 0 } else { random.units(0, u32::MAX) };
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
            1 => Span::Micros(micros(policy.quota().window()) / u64::from(policy.quota().limit())),
            2 => Span::Micros(random.magnitude(0, micros(policy.quota().window()) * 2)),
            3 => Span::Micros(random.magnitude(0, 1 << 52)),
            4..=6 => Span::ToldWait(before),
            7 => Span::ToldReset(before),
            8 => Span::Edge { parts: 1, before },
            _ => Span::Edge { parts: buckets, before },
        }
    }

    fn after(self, now: Timestamp, policy: &Policy, told_wait: u64, told_reset: u64) -> Timestamp {
        let span = match self {
            Span::Micros(span) => span,
            Span::ToldWait(less) => told_wait.saturating_sub(less),
            Span::ToldReset(less) => told_reset.saturating_sub(less),
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
