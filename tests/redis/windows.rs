//! Around the ends of short windows, by the server's own clock.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;
use tollgate::{Algorithm, Policy};
use tollgate_test_servers::Kind;

use crate::redis::{BothLayouts, Fresh, acquire, at_once, every_policy, shared};

const LIMIT: u64 = 5;
const WINDOW: Duration = Duration::from_millis(20);

/// The answers to one caller that asks as fast as possible.
type Answers = Vec<Answer>;

struct Answer {
    /// That of a grant. `None` for a denial.
    stamp: Option<u64>,
    /// By the server's clock.
    decided_at: u64,
}

/// Asks until ten windows' worth is granted.
async fn ask_over_ten_windows(fresh: &Fresh, policy: &Policy) -> Answers {
    let mut answers = Answers::new();
    let mut granted = 0;
    while granted < 10 * LIMIT {
        let verdict = acquire(&fresh.store, policy, "ada", 1).await;
        granted += u64::from(verdict.times());
        answers.push(Answer {
            stamp: verdict.is_granted().then(|| verdict.each()[0].stamp().micros()),
            decided_at: verdict.decided_at().expect("a store decides").as_micros(),
        });
    }
    answers
}

fn by_stamp(answers: &[Answer]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for stamp in answers.iter().filter_map(|answer| answer.stamp) {
        *counts.entry(stamp).or_default() += 1;
    }
    counts
}

/// A key and its state end at nearly the same time. State that is forgotten early grants too much.
/// State that is found after its end denies units of the new window.
///
/// If hits prolonged the key's life, the window would never end.
#[tokio::test]
async fn an_ending_window_is_neither_forgotten_early_nor_inherited() {
    at_once(Kind::EVERY, windows_end_on).await;
}

async fn windows_end_on(kind: Kind) {
    let window = u64::try_from(WINDOW.as_micros()).unwrap();
    let stores = BothLayouts::on(shared(kind)).await;
    for (policy, layout) in every_policy(LIMIT, WINDOW) {
        let fresh = stores.of(layout);
        let what = format!("{policy:?} on {kind}");
        let asked = timeout(Duration::from_secs(60), ask_over_ten_windows(fresh, &policy)).await;
        let answers = asked.unwrap_or_else(|_| panic!("no end of the window: {what}"));
        let counts = by_stamp(&answers);
        let stamps: Vec<u64> = answers.iter().filter_map(|answer| answer.stamp).collect();
        match policy.algorithm() {
            Algorithm::FixedWindow { .. } | Algorithm::CalendarWindow { .. } => {
                assert!(counts.values().all(|count| *count <= LIMIT), "{what}: {counts:?}");
                // The stamp is the start of a window, and of one in a calendar its end. A call that
                // is later than the windows which it carries opens one that is not in the calendar,
                // from its own time on: its answer names the window of the calendar, and the next
                // answers the one that is counted.
                let is_calendar = matches!(policy.algorithm(), Algorithm::CalendarWindow { .. });
                let length = if is_calendar { 0 } else { window };
                let (mut used, mut opened) = ((0, 0), 0);
                // A clock that steps back ends a key early: Redis before 7.0 reads it twice.
                let mut latest = 0;
                for answer in answers {
                    match answer.stamp {
                        Some(stamp) if stamp == used.0 => used.1 += 1,
                        Some(stamp) if is_calendar && stamp == opened + window => used = (stamp, used.1 + 1),
                        Some(stamp) => {
                            let (now, before) = (answer.decided_at, used.0);
                            assert!(
                                now >= before + length,
                                "{what}: {before} forgotten at {now} for {stamp}, the last answer of {latest}"
                            );
                            (used, opened) = ((stamp, 1), now);
                        }
                        None => assert_eq!(used.1, LIMIT, "{what}: denied with units left"),
                    }
                    latest = answer.decided_at;
                }
            }
            Algorithm::SlidingWindow => {
                assert!(counts.values().all(|count| *count <= LIMIT), "{what}: {counts:?}");
            }
            Algorithm::SlidingBuckets { buckets } => {
                let ring = u64::from(buckets) + 1;
                for first in counts.keys() {
                    let sum: u64 = counts.range(first..&(first + ring)).map(|(_, count)| count).sum();
                    assert!(sum <= LIMIT, "{what}: {sum} from {first}: {counts:?}");
                }
            }
            Algorithm::SlidingLog { .. } => {
                let too_near = stamps
                    .windows(usize::try_from(LIMIT).unwrap() + 1)
                    .find(|some| some[some.len() - 1] < some[0] + window);
                assert_eq!(too_near, None, "{what}");
            }
            _ => {
                let interval = window / LIMIT;
                assert!(stamps.windows(2).all(|two| two[1] >= two[0] + interval), "{what}: {stamps:?}");
            }
        }
    }
}
