//! Boundaries of windows, compared with Python's `zoneinfo`.

use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate::calendar::CalendarWindow;
use tollgate::{Algorithm, ManualClock, MemoryStore, Timestamp, Wait};

use crate::calendar::acquire;

const YEARS: (i32, i32) = (2007, 2047);

/// Zones on both sides of the date line, with offsets and changes of half an hour, with days that
/// begin at one o'clock, and with a day that was left out.
const ZONES: [&str; 8] = [
    "UTC",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Europe/Dublin",
];

/// A window of the calendar, and how the script names it.
struct Question {
    zone: &'static str,
    length: &'static str,
    anchor: u8,
}

impl Question {
    fn window(&self) -> CalendarWindow {
        match self.length {
            "day" => CalendarWindow::day(self.zone),
            "week" => CalendarWindow::week(self.zone).anchor(self.anchor),
            _ => CalendarWindow::month(self.zone).anchor(self.anchor),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {} {}", self.zone, self.length, self.anchor, YEARS.0, YEARS.1)
    }
}

fn questions() -> Vec<Question> {
    let lengths = [("day", 1), ("week", 1), ("week", 7), ("month", 1), ("month", 15), ("month", 31)];
    let of_zone = |zone| lengths.map(|(length, anchor)| Question { zone, length, anchor });
    ZONES.into_iter().flat_map(of_zone).collect()
}

/// The answers of Python, in microseconds.
fn answers(questions: &[Question]) -> Vec<Vec<u64>> {
    let needs = "this test needs python3 with zoneinfo and a time zone database (package tzdata)";
    let mut python = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/calendar/boundaries.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{needs}: {error}"));
    let input: String = questions.iter().map(|question| format!("{question}\n")).collect();
    python.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{needs}");
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = |line: &str| {
        let seconds = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        seconds.map(|seconds| seconds * 1_000_000).collect()
    };
    text.lines().map(numbers).collect()
}

fn boundaries(window: &CalendarWindow) -> &'static [u64] {
    match window.algorithm() {
        Algorithm::CalendarWindow { boundaries } => boundaries.as_micros(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn boundaries_equal_those_of_python_over_forty_years() {
    let questions = questions();
    let answers = answers(&questions);
    assert_eq!(answers.len(), questions.len());
    for (question, expected) in questions.iter().zip(answers) {
        let (first, last) = (expected[0], expected[expected.len() - 1]);
        let all = boundaries(&question.window());
        let ours: Vec<u64> = all.iter().copied().filter(|at| (first..=last).contains(at)).collect();
        assert_eq!(ours, expected, "{question}");
    }
}

/// The whole quota of a month returns at each boundary, and nothing a microsecond before.
#[tokio::test]
async fn a_quota_returns_exactly_at_each_boundary_of_twenty_years() {
    let questions: Vec<_> = questions().into_iter().filter(|question| question.length == "month").collect();
    for (question, expected) in questions.iter().zip(answers(&questions)) {
        let time = ManualClock::new(Timestamp::from_micros(expected[0]));
        let store = MemoryStore::builder().clock(&time).build();
        let policy = question.window().policy("monthly", 3);
        for two in expected.windows(2).take(20 * 12) {
            let what = format!("{question} from {}", two[0]);
            assert!(acquire(&store, &policy, "ada", 3).await.is_granted(), "{what}");
            let wait = Wait::For(Duration::from_micros(two[1] - two[0]));
            assert_eq!(acquire(&store, &policy, "ada", 1).await.wait(), wait, "{what}");
            time.set(Timestamp::from_micros(two[1] - 1));
            let wait = Wait::For(Duration::from_micros(1));
            assert_eq!(acquire(&store, &policy, "ada", 1).await.wait(), wait, "{what}");
            time.set(Timestamp::from_micros(two[1]));
        }
    }
}

/// The hours of the windows that begin in this part of a table.
fn hours(window: &CalendarWindow, from: u64, count: usize) -> Vec<u64> {
    let all = boundaries(window);
    let at = all.partition_point(|at| *at < from * 1_000_000);
    all[at..].windows(2).take(count).map(|two| (two[1] - two[0]) / 3_600_000_000).collect()
}

#[test]
fn days_have_23_24_or_25_hours_and_months_as_many_days_as_they_have() {
    // From 2026-03-28 and 2026-10-24 on.
    let berlin = CalendarWindow::day("Europe/Berlin");
    assert_eq!(hours(&berlin, 1_774_652_400, 3), [24, 23, 24]);
    assert_eq!(hours(&berlin, 1_792_792_800, 3), [24, 25, 24]);
    // From 2027-12-31 on: January, February of a leap year, March ...
    let of_31 = CalendarWindow::month("UTC").anchor(31);
    let days: Vec<u64> = hours(&of_31, 1_830_211_200, 6).iter().map(|hours| hours / 24).collect();
    assert_eq!(days, [31, 29, 31, 30, 31, 30]);
    // 2011-12-30 was left out.
    assert_eq!(hours(&CalendarWindow::day("Pacific/Apia"), 1_325_152_800, 2), [24, 24]);
}

#[test]
fn tables_reach_from_the_epoch_to_the_end_of_time() {
    for window in [CalendarWindow::day("UTC"), CalendarWindow::week("UTC"), CalendarWindow::month("UTC")] {
        let all = boundaries(&window);
        let most = 31 * 86_400_000_000;
        assert!(all[0] <= most && all[all.len() - 1] + most > Timestamp::MAX.as_micros(), "{window:?}");
    }
}
