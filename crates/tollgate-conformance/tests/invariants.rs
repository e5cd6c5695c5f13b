//! Checks each algorithm's guarantee on the requests that it allowed, without an oracle.

use std::time::Duration;

use tollgate_conformance::random::Random;
use tollgate_core::algorithm::State;
use tollgate_core::{Algorithm, Policy, Timestamp, Wait};

/// A thirtieth of them without `TOLLGATE_LONG=1`.
fn cases() -> u64 {
    if std::env::var_os("TOLLGATE_LONG").is_some() { 30_000 } else { 1_000 }
}

/// An allowed request. In i128, where no sum or product overflows.
struct Allowed {
    at: i128,
    leaves: i128,
    units: i128,
}

/// Sends requests at random times with random costs, mostly as early and as large as possible.
fn drive(random: &mut Random, policy: &Policy) -> Vec<Allowed> {
    let window = micros(policy.quota().window());
    let mut now = Timestamp::from_micros(random.magnitude(0, 1 << 51));
    let mut state = State::new(policy);
    let mut allowed = Vec::new();
    for _ in 0..80 {
        let look = state.look(policy, now);
        let room = look.room;
        let cost = if random.below(3) == 0 { room } else { random.cost(policy) };
        if cost > 0 && cost <= room {
            let charge = state.charge(policy, now, look, cost);
            let at = i128::from(now.as_micros());
            let leaves = at + i128::from(micros(charge.delay));
            allowed.push(Allowed { at, leaves, units: i128::from(cost) });
        }
        state.look(policy, now);
        let wait = match state.wait(policy, now, random.magnitude(1, policy.largest_cost())) {
            Wait::For(wait) => micros(wait),
            _ => 0,
        };
        let some = random.magnitude(0, window * 2);
        let edge = window - now.as_micros() % window;
        let span =
            random.one_of(&[0, 0, 1, wait, wait, wait.saturating_sub(1), edge, edge - 1, some, window / 10]);
        now = now.saturating_add(Duration::from_micros(span));
    }
    allowed
}

fn drives(algorithm: Algorithm, holds: impl Fn(&Policy, i128, i128, &[Allowed])) {
    let mut random = Random::new(1);
    for _ in 0..cases() {
        let policy = random.policy("invariant", algorithm);
        let allowed = drive(&mut random, &policy);
        let (limit, window) = (policy.quota().limit(), micros(policy.quota().window()));
        holds(&policy, i128::from(limit), i128::from(window), &allowed);
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("a span of time of tollgate's domain is far below 2^64 µs")
}

fn units(allowed: &[Allowed]) -> i128 {
    allowed.iter().map(|allowed| allowed.units).sum()
}

/// Checks that no window, wherever it begins, contains more than the limit.
fn no_window_exceeds_the_limit(policy: &Policy, limit: i128, window: i128, allowed: &[Allowed]) {
    for (i, first) in allowed.iter().enumerate() {
        let within: Vec<_> = allowed[i..].iter().filter(|later| later.at - first.at < window).collect();
        let sum: i128 = within.iter().map(|allowed| allowed.units).sum();
        assert!(sum <= limit, "{sum} units from {} on under {policy:?}", first.at);
    }
}

#[test]
fn sliding_log_keeps_the_limit_in_every_window() {
    drives(Algorithm::SlidingLog { max_limit: u32::MAX }, no_window_exceeds_the_limit);
}

#[test]
fn sliding_buckets_keep_the_limit_in_every_window() {
    drives(Algorithm::SLIDING_BUCKETS, no_window_exceeds_the_limit);
}

#[test]
fn fixed_windows_keep_the_limit_in_each_window() {
    drives(Algorithm::FIXED_WINDOW_ALIGNED, |policy, limit, window, allowed| {
        for of_one in allowed.chunk_by(|a, b| a.at / window == b.at / window) {
            assert!(units(of_one) <= limit, "{} units under {policy:?}", units(of_one));
        }
    });
    drives(Algorithm::FIXED_WINDOW, |policy, limit, window, allowed| {
        let mut rest = allowed;
        while let Some(first) = rest.first() {
            let of_one = rest.partition_point(|later| later.at - first.at < window);
            assert!(units(&rest[..of_one]) <= limit, "{} units under {policy:?}", units(&rest[..of_one]));
            rest = &rest[of_one..];
        }
    });
}

#[test]
fn the_sliding_window_keeps_the_limit_in_aligned_windows() {
    drives(Algorithm::SlidingWindow, |policy, limit, window, allowed| {
        for of_one in allowed.chunk_by(|a, b| a.at / window == b.at / window) {
            assert!(units(of_one) <= limit, "{} units under {policy:?}", units(of_one));
        }
    });
}

#[test]
fn the_token_bucket_keeps_burst_plus_rate_in_any_time() {
    drives(Algorithm::Gcra, |policy, limit, window, allowed| {
        let burst = i128::from(policy.capacity());
        for (i, first) in allowed.iter().enumerate() {
            let mut sum = 0;
            for last in &allowed[i..] {
                sum += last.units;
                let most = burst * window + (last.at - first.at) * limit;
                assert!(sum * window <= most, "{sum} units in {} µs under {policy:?}", last.at - first.at);
            }
        }
    });
}

#[test]
fn departures_from_the_queue_keep_the_rate() {
    drives(Algorithm::LeakyBucket { max_wait: Duration::ZERO }, |policy, limit, window, allowed| {
        let Algorithm::LeakyBucket { max_wait } = policy.algorithm() else { unreachable!() };
        let burst = i128::from(policy.capacity());
        for (i, first) in allowed.iter().enumerate() {
            let delay = first.leaves - first.at;
            assert!(delay <= i128::from(micros(max_wait)), "a delay of {delay} under {policy:?}");
            let mut after = 0;
            for last in &allowed[i + 1..] {
                after += last.units;
                assert!(last.leaves >= first.leaves, "a request overtakes another under {policy:?}");
                // Departures round up, so two may be closer by less than a microsecond.
                let passed = last.leaves - first.leaves + 1;
                let most = (burst - first.units.min(burst)) * window + passed * limit;
                assert!(
                    after * window <= most,
                    "{after} units in {passed} µs after {first_units} under {policy:?}",
                    first_units = first.units
                );
            }
        }
    });
}
