//! What a fleet promises, and how close it came.

use std::time::Duration;

use tollgate::Algorithm;

use super::{Admission, Mode, Outcome, Plan, START};

/// The most that was admitted, and the bound of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closest {
    pub admitted: f64,
    pub bound: f64,
}

impl Closest {
    /// Whether the bound held.
    pub fn holds(&self) -> bool {
        self.admitted <= self.bound
    }

    /// The part of the bound that was used.
    pub fn ratio(&self) -> f64 {
        self.admitted / self.bound
    }
}

/// The time of any key at which the fleet came closest to its bound, or exceeded it most.
pub fn closest(plan: &Plan, outcome: &Outcome) -> Closest {
    let mut closest = Closest { admitted: 0.0, bound: 1.0 };
    for key in 0..plan.keys {
        let mut of_key: Vec<&Admission> = outcome.admitted.iter().filter(|one| one.key == key).collect();
        of_key.sort_unstable_by_key(|one| one.at);
        let of_key = match plan.algorithm {
            Algorithm::FixedWindow { .. } => windows(plan, of_key),
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => bucket(plan, &of_key),
            Algorithm::SlidingWindow => weighted(plan, outcome, &of_key),
            _ => sliding(plan, outcome, &of_key),
        };
        if of_key.ratio() > closest.ratio() {
            closest = of_key;
        }
    }
    closest
}

/// A fixed window is never exceeded, and no unit is spent after its end.
fn windows(plan: &Plan, mut admitted: Vec<&Admission>) -> Closest {
    let window = micros(plan.quota.window());
    let late = admitted.iter().filter(|one| one.at >= one.stamp + window).count();
    admitted.sort_unstable_by_key(|one| one.stamp);
    let counts = admitted.chunk_by(|a, b| a.stamp == b.stamp).map(<[_]>::len);
    let most = counts.max().unwrap_or(0);
    let limit = plan.quota.limit();
    at_most(
        most + if late > 0 { usize::try_from(limit).unwrap_or(usize::MAX) + late } else { 0 },
        limit as f64,
    )
}

/// A token bucket admits at most burst + rate × (t + d) in any time t: a bucket that is larger by
/// rate × d never overflows.
fn bucket(plan: &Plan, admitted: &[&Admission]) -> Closest {
    let rate = plan.quota.limit() as f64 / plan.quota.window().as_micros() as f64;
    let bound = plan.policy().capacity() as f64 + rate * life(plan).as_micros() as f64;
    let (mut level, mut most, mut before) = (0.0_f64, 0.0_f64, START);
    for Admission { at, .. } in admitted {
        level = (level - rate * (at - before) as f64).max(0.0) + 1.0;
        most = most.max(level);
        before = *at;
    }
    Closest { admitted: most, bound }
}

/// The estimate of two windows admits at most limit + N × C: what is held when a window begins
/// moves from it to the next one.
fn weighted(plan: &Plan, outcome: &Outcome, admitted: &[&Admission]) -> Closest {
    let window = micros(plan.quota.window());
    let (mut number, mut previous, mut current, mut most) = (0, 0.0, 0.0, 0.0_f64);
    for Admission { at, .. } in admitted {
        let of_this = at / window;
        if of_this > number {
            previous = if of_this == number + 1 { current } else { 0.0 };
            (number, current) = (of_this, 0.0);
        }
        current += 1.0;
        let covered = 1.0 - (at % window) as f64 / window as f64;
        most = most.max(previous * covered + current);
    }
    Closest { admitted: most, bound: with_leases(plan, outcome.nodes) }
}

/// A log or ring admits at most limit + N × C in any window.
fn sliding(plan: &Plan, outcome: &Outcome, admitted: &[&Admission]) -> Closest {
    at_most(most_within(admitted, micros(plan.quota.window())), with_leases(plan, outcome.nodes))
}

/// limit + N × C.
pub fn with_leases(plan: &Plan, nodes: u32) -> f64 {
    let most_units = if plan.mode == Mode::Leases { plan.lease_units } else { 0 };
    plan.quota.limit() as f64 + f64::from(nodes) * f64::from(most_units)
}

fn at_most(admitted: usize, bound: f64) -> Closest {
    Closest { admitted: admitted as f64, bound }
}

fn most_within(admitted: &[&Admission], window: u64) -> usize {
    let mut first = 0;
    let lengths = admitted.iter().enumerate().map(|(last, one)| {
        while one.at - admitted[first].at >= window {
            first += 1;
        }
        last + 1 - first
    });
    lengths.max().unwrap_or(0)
}

fn life(plan: &Plan) -> Duration {
    if plan.mode == Mode::Leases { plan.life } else { Duration::ZERO }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
