//! How far the wall clock has stepped, by a thread that reads it once a second.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use super::{Timer, Timestamp, wall_time};

/// The first reading of the wall clock, and the monotonic time since then.
static FIRST: OnceLock<(Timestamp, Timer)> = OnceLock::new();

/// The steps of the wall clock since the first reading, when it was read last, in microseconds.
static STEPPED_US: AtomicI64 = AtomicI64::new(0);

/// Whether a thread reads the wall clock.
static IS_FOLLOWED: OnceLock<bool> = OnceLock::new();

const PAUSE: Duration = Duration::from_secs(1);

/// How far the wall clock has stepped since the first reading, if it shows `wall` now.
pub(super) fn stepped_us(wall: Timestamp) -> i64 {
    let (first, since) = FIRST.get_or_init(|| (wall, Timer::start()));
    let expected = first.as_micros().saturating_add(since.elapsed_us());
    wall.as_micros().cast_signed().saturating_sub_unsigned(expected)
}

/// `now` of a clock before whose construction the wall clock had stepped so far, with the steps
/// since then.
#[inline]
pub(super) fn followed(now: Timestamp, stepped_us: i64) -> Timestamp {
    if !*IS_FOLLOWED.get_or_init(follow) {
        return now;
    }
    let since = STEPPED_US.load(Ordering::Relaxed).saturating_sub(stepped_us);
    Timestamp::from_micros(now.as_micros().saturating_add_signed(since))
}

/// Reads the wall clock now, and then once a second. Returns whether a thread does.
#[cold]
fn follow() -> bool {
    STEPPED_US.store(stepped_us(wall_time()), Ordering::Relaxed);
    let reader = thread::Builder::new().name("tollgate-wall-clock".to_owned());
    reader.spawn(read_each_second).is_ok()
}

fn read_each_second() {
    loop {
        thread::sleep(PAUSE);
        STEPPED_US.store(stepped_us(wall_time()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Clock;

    #[test]
    fn a_clock_shows_the_steps_since_its_construction() {
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        // Another test lets the processor's counter restart: a step between the two readings.
        let shows_the_step = || {
            let before = followed(now, 0).as_micros();
            let after = followed(now, -7_000_000).as_micros();
            after.abs_diff(before + 7_000_000) < 1_000_000
        };
        assert!((0..3).any(|_| shows_the_step()));
        assert_eq!(followed(Timestamp::MAX, i64::MIN), Timestamp::MAX);
        assert_eq!(followed(Timestamp::EPOCH, i64::MAX), Timestamp::EPOCH);
    }

    #[test]
    fn without_a_step_the_wall_clock_shows_the_same_time() {
        // Another test lets the processor's counter restart.
        let shows_another_time = || {
            let clock = Clock::system();
            let now = clock.now();
            clock.on_the_wall(now).as_micros().abs_diff(now.as_micros()) > 1_000_000
        };
        while shows_another_time() {
            thread::sleep(PAUSE / 4);
        }
    }
}
