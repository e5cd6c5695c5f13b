//! Windows in memory follow steps of the wall clock.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::calendar::process_control::{Answer, Process};

const HOUR: u64 = 3_600_000_000;

/// A file with the seconds that the wall clock of a process is ahead.
struct Ahead(PathBuf);

impl Ahead {
    fn new(name: &str) -> Ahead {
        let ahead = Ahead(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name));
        ahead.set(0);
        ahead
    }

    fn set(&self, seconds: i64) {
        // By renaming, so that no process reads half of it.
        let next = self.0.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n")).unwrap();
        fs::rename(next, &self.0).unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "the test needs the time of the process that it starts")]
fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// Asks until an answer is as expected. A process needs about a second to notice a step.
fn ask_until(process: &mut Process, is_expected: impl Fn(Answer) -> bool) -> Answer {
    for _ in 0..240 {
        match process.ask() {
            answer if is_expected(answer) => return answer,
            _ => sleep(Duration::from_millis(250)),
        }
    }
    panic!("the windows do not follow the wall clock");
}

/// As after a suspension, during which a monotonic clock stands still.
#[test]
fn a_window_ends_when_the_wall_clock_steps_beyond_its_end() {
    let ahead = Ahead::new("calendar-forward");
    let first = now() - HOUR / 2;
    let boundaries: Vec<u64> = (0..60).map(|n| first + n * HOUR).collect();
    let mut process = Process::following("memory", 1, &boundaries, &ahead.0);
    assert_eq!(process.ask(), Answer::Granted(boundaries[1]));
    assert!(matches!(process.ask(), Answer::Denied(wait) if wait <= HOUR / 2));
    // A day and an hour.
    ahead.set(25 * 3_600);
    let granted = ask_until(&mut process, |answer| matches!(answer, Answer::Granted(_)));
    assert_eq!(granted, Answer::Granted(boundaries[26]));
    assert!(matches!(process.ask(), Answer::Denied(wait) if wait <= HOUR / 2));
}

#[test]
fn a_window_keeps_its_end_when_the_wall_clock_steps_back() {
    let ahead = Ahead::new("calendar-back");
    // The window begins 5 minutes ago, and the clock steps back by 6.
    let first = now() - HOUR / 12;
    let boundaries: Vec<u64> = (0..10).map(|n| first - 4 * HOUR + n * HOUR).collect();
    let mut process = Process::following("memory", 1, &boundaries, &ahead.0);
    assert_eq!(process.ask(), Answer::Granted(boundaries[5]));
    ahead.set(-360);
    let denied = ask_until(&mut process, |answer| matches!(answer, Answer::Denied(wait) if wait > HOUR));
    assert!(matches!(denied, Answer::Denied(wait) if wait <= HOUR + HOUR / 8), "{denied:?}");
    ahead.set(0);
    let denied = ask_until(&mut process, |answer| matches!(answer, Answer::Denied(wait) if wait < HOUR));
    assert!(matches!(denied, Answer::Denied(_)), "the same window");
}
