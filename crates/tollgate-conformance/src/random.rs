//! Random numbers that are the same in every run, and random policies with many edge cases.

use std::time::Duration;

use tollgate_core::{Algorithm, Policy, PolicyError, Quota, Times};

use crate::calendar::{CALENDAR_WINDOW, LATER_CALENDAR_WINDOW};
use crate::history::used::Used;

/// A deterministic stream of numbers (SplitMix64, Steele et al. 2014).
///
/// ```
/// use tollgate_conformance::random::Random;
///
/// let (mut a, mut b) = (Random::new(7), Random::new(7));
/// assert_eq!(a.next_u64(), b.next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// One of the choices.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let n = u64::try_from(choices.len()).unwrap_or(u64::MAX);
        choices[usize::try_from(self.below(n)).unwrap_or(0)]
    }

    /// A number between `least` and `most`. All orders of magnitude are equally likely.
    pub fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let bits = u64::from(u64::BITS - most.leading_zeros());
        let shift = 64 - bits.min(64) + self.below(bits.max(1));
        let shift = u32::try_from(shift).unwrap_or(63).min(63);
        (self.next_u64() >> shift).clamp(least, most)
    }

    /// [`Random::magnitude`] of a `u32`.
    pub fn small(&mut self, least: u32, most: u32) -> u32 {
        u32::try_from(self.magnitude(u64::from(least), u64::from(most))).unwrap_or(most)
    }

    /// A random [`Times`], mostly once.
    pub fn times(&mut self) -> Times {
        let some = self.small(0, 20);
        match self.below(12) {
            0 => Times::LOOK,
            1 => Times::up_to(some),
            2 => Times::up_to(u32::MAX),
            3 => Times::between(some, some.saturating_mul(2)),
            4 => Times::between(0, some),
            5 => Times::between(u32::MAX, u32::MAX),
            _ => Times::ONCE,
        }
    }

    /// A cost: small, at the limits of `policy`, or arbitrary.
    pub fn cost(&mut self, policy: &Policy) -> u64 {
        let (capacity, largest) = (policy.capacity(), policy.largest_cost());
        match self.below(16) {
            0 => 0,
            1..=6 => 1,
            7 => capacity,
            8 => largest,
            9 => largest.saturating_add(1),
            10 => u64::MAX,
            11 => capacity.div_ceil(2),
            12 => self.magnitude(1, Quota::MAX_UNITS),
            _ => self.magnitude(1, largest),
        }
    }

    /// What was used of a grant: less, or more. Often as much as debt can have, or even more.
    pub fn used(&mut self, policy: &Policy) -> Used {
        let (capacity, cost) = (policy.capacity(), self.cost(policy));
        if self.below(3) == 0 {
            return Used::Short(self.one_of(&[0, 1, cost]));
        }
        Used::Beyond(self.one_of(&[cost, cost, capacity, 2 * capacity, 2 * capacity + 1]))
    }

    /// A quota from the whole domain, with or without a burst.
    pub fn quota(&mut self) -> Quota {
        const LIMITS: [u64; 18] = [
            1,
            2,
            3,
            5,
            7,
            10,
            60,
            97,
            1_000,
            65_537,
            999_983,
            1_000_000,
            4_000_000,
            (1 << 32) - 1,
            1 << 32,
            50_000_000_000,
            Quota::MAX_UNITS - 1,
            Quota::MAX_UNITS,
        ];
        const WINDOWS: [u64; 9] = [
            1_000,
            1_001,
            999_983,
            1_000_000,
            10_000_000,
            60_000_000,
            86_400_000_000,
            31_536_000_000_001,
            31_622_400_000_000,
        ];
        let limit =
            if self.below(4) == 0 { self.magnitude(1, Quota::MAX_UNITS) } else { self.one_of(&LIMITS) };
        let window = if self.below(4) == 0 {
            self.magnitude(1_000, 31_622_400_000_000)
        } else {
            self.one_of(&WINDOWS)
        };
        let quota = Quota::new(limit, Duration::from_micros(window));
        self.burst_for(quota)
    }

    fn burst_for(&mut self, quota: Quota) -> Quota {
        let most = (1_u128 << 52) * u128::from(quota.limit()) / quota.window().as_micros();
        let most = u64::try_from(most).unwrap_or(u64::MAX).min(Quota::MAX_UNITS);
        let burst = match self.below(6) {
            0 => 1,
            1 => 2,
            2 => most,
            3 => self.magnitude(1, most),
            _ => return quota,
        };
        quota.try_burst(burst).unwrap_or(quota)
    }

    /// A policy of this algorithm with a quota from the whole domain. The longest wait of a leaky
    /// bucket and the number of sub-windows are random too.
    pub fn policy(&mut self, name: &str, algorithm: Algorithm) -> Policy {
        let quota = self.quota();
        let quota = Random::within(quota, quota.limit(), algorithm);
        let algorithm = match algorithm {
            Algorithm::LeakyBucket { .. } => Algorithm::LeakyBucket { max_wait: self.max_wait(quota) },
            Algorithm::SlidingBuckets { .. } => {
                let some = self.small(1, Algorithm::MAX_BUCKETS);
                Algorithm::SlidingBuckets { buckets: self.one_of(&[1, 2, 3, 10, 60, 1_000, some]) }
            }
            other => other,
        };
        build(name, quota, algorithm)
    }

    /// The quota with this limit, at most that of a log. Keeps the burst if the limit stays.
    fn within(quota: Quota, limit: u64, algorithm: Algorithm) -> Quota {
        let limit = match algorithm {
            Algorithm::SlidingLog { max_limit } => limit.min(u64::from(max_limit)),
            _ => limit,
        };
        if limit == quota.limit() { quota } else { Quota::new(limit, quota.window()) }
    }

    fn max_wait(&mut self, quota: Quota) -> Duration {
        let interval = Duration::from_micros(micros(quota.window()) / quota.limit());
        let micros = self.magnitude(1, 1 << 52);
        let few = u32::try_from(self.below(40)).unwrap_or(1);
        self.one_of(&[
            Duration::ZERO,
            Duration::from_micros(1),
            interval,
            quota.window(),
            quota.window() * few / 10,
            Duration::from_micros(micros),
        ])
    }

    /// The same policy with another limit, burst and boundaries. The scope stays, so its state
    /// remains valid.
    pub fn changed(&mut self, policy: &Policy) -> Policy {
        let other = self.quota().limit();
        let limit = policy.quota().limit();
        let limit = self.one_of(&[other, limit, (limit / 2).max(1), (limit * 2).min(Quota::MAX_UNITS)]);
        let quota = self.burst_for(Random::within(policy.quota(), limit, policy.algorithm()));
        let algorithm = match policy.algorithm() {
            Algorithm::CalendarWindow { .. } => self.one_of(&[CALENDAR_WINDOW, LATER_CALENDAR_WINDOW]),
            algorithm => algorithm,
        };
        let changed = build(policy.name(), quota, algorithm);
        if changed.scope() == policy.scope() { changed } else { policy.clone() }
    }

    /// [`Random::changed`] by which no state is rounded: a bucket keeps its limit.
    pub fn resized(&mut self, policy: &Policy) -> Policy {
        match policy.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => {
                let plain = Quota::new(policy.quota().limit(), policy.quota().window());
                let resized = build(policy.name(), self.burst_for(plain), policy.algorithm());
                if resized.scope() == policy.scope() { resized } else { policy.clone() }
            }
            _ => self.changed(policy),
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn build(name: &str, quota: Quota, algorithm: Algorithm) -> Policy {
    let plain = Quota::new(quota.limit(), quota.window());
    match Policy::try_from_parts(name, quota, algorithm) {
        Ok(policy) => return policy,
        Err(PolicyError::TooManyParts { nearest }) => {
            let near = Quota::new(nearest, quota.window());
            let burst = quota.given_burst().and_then(|burst| near.try_burst(burst).ok());
            return build(name, burst.unwrap_or(near), algorithm);
        }
        Err(_) => {}
    }
    // The burst does not fit a window algorithm, or is too large with the longest wait.
    Policy::try_from_parts(name, plain, algorithm)
        .or_else(|_| Policy::try_from_parts(name, plain, Algorithm::LeakyBucket { max_wait: Duration::ZERO }))
        .unwrap_or_else(|error| panic!("a quota of the domain without a burst is always a policy: {error}"))
}
