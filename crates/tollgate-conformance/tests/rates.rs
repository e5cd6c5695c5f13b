//! GCRA equals rational arithmetic, to the unit, over an hour.

use std::time::Duration;

use tollgate_core::algorithm::State;
use tollgate_core::{Policy, Quota, Timestamp, Wait};

const START: u64 = 1_767_225_600_123_457;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// Takes all units every `step` µs for an hour. The sum must always be burst + floor(rate × t).
fn greedy(per_second: u64, burst: u64, step: u64) -> u64 {
    let policy = Policy::new("greedy", Quota::per_second(per_second).burst(burst));
    let mut state = State::new(&policy);
    let mut taken = 0;
    for passed in (0..=HOUR).step_by(usize::try_from(step).expect("a step below 4 s")) {
        let now = Timestamp::from_micros(START + passed);
        let look = state.look(&policy, now);
        let room = look.room;
        state.charge(&policy, now, look, room);
        taken += room;
        let due = burst + passed * per_second / SECOND;
        assert_eq!(taken, due, "{per_second} a second, after {passed} µs");
    }
    taken
}

/// Takes a unit, waits, and takes the next. In an hour this must give burst + floor(rate × t)
/// units, the n-th delayed one at ceil(n / rate).
fn paced(per_second: u64, burst: u64) -> u64 {
    let policy = Policy::new("paced", Quota::per_second(per_second).burst(burst));
    let mut state = State::new(&policy);
    let (mut passed, mut taken) = (0, 0_u64);
    loop {
        let now = Timestamp::from_micros(START + passed);
        let look = state.look(&policy, now);
        if look.room > 0 {
            state.charge(&policy, now, look, 1);
            taken += 1;
            if let Some(waited) = (taken - 1).checked_sub(burst - 1).filter(|waited| *waited > 0) {
                let due = (waited * SECOND).div_ceil(per_second);
                assert_eq!(passed, due, "{per_second} a second, request {taken}");
            }
            continue;
        }
        match state.wait(&policy, now, 1) {
            Wait::For(wait) => passed += u64::try_from(wait.as_micros()).expect("a wait below an hour"),
            other => panic!("no room, but the wait is {other:?}"),
        }
        if passed > HOUR {
            return taken;
        }
    }
}

#[test]
fn three_a_second_are_exact_for_an_hour() {
    // Not 1: a full bucket would lose a fraction of a microsecond before each request.
    assert_eq!(greedy(3, 3, 1_000), 3 + 3 * 3_600);
    assert_eq!(greedy(3, 2, 100_000), 2 + 3 * 3_600);
    assert_eq!(paced(3, 3), 3 + 3 * 3_600);
    assert_eq!(paced(3, 2), 2 + 3 * 3_600);
}

#[test]
fn seven_a_second_are_exact_for_an_hour() {
    assert_eq!(greedy(7, 2, 1_000), 2 + 7 * 3_600);
    assert_eq!(greedy(7, 7, 100_000), 7 + 7 * 3_600);
    assert_eq!(paced(7, 7), 7 + 7 * 3_600);
}

#[test]
fn a_million_a_second_are_exact_for_an_hour() {
    assert_eq!(greedy(1_000_000, 1_000_000, 1_000), 1_000_000 + 1_000_000 * 3_600);
    assert_eq!(greedy(1_000_000, 5_000, 3_600), 5_000 + 1_000_000 * 3_600);
    assert_eq!(greedy(999_983, 5_000, 1_000), 5_000 + 999_983 * 3_600);
}

#[test]
fn the_wait_of_an_empty_bucket_is_one_interval_rounded_up() {
    for per_second in [3, 7, 11, 999, 999_983] {
        let policy = Policy::new("interval", Quota::per_second(per_second));
        let now = Timestamp::from_micros(START);
        let mut state = State::new(&policy);
        let look = state.look(&policy, now);
        state.charge(&policy, now, look, per_second);
        let interval = Duration::from_micros(SECOND.div_ceil(per_second));
        assert_eq!(state.wait(&policy, now, 1), Wait::For(interval), "{per_second}");
    }
}
