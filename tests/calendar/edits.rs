//! Zone and anchor that are edited while windows run.

use std::time::Duration;

use tollgate::calendar::CalendarWindow;
use tollgate::store::Boundaries;
use tollgate::store::{Check, Grant, Stamp, Store, Times};
use tollgate::{Algorithm, Key, ManualClock, MemoryStore, Policy, Timestamp, Wait};
use tollgate_conformance::random::Random;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

use crate::calendar::acquire;

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

const LIMIT: u64 = 3;

const DAY: u64 = 86_400_000_000;

/// 2026-01-01 in UTC, in microseconds.
const START: u64 = 1_767_225_600_000_000;

const TWENTY_YEARS: u64 = 20 * 365 * DAY;

fn monthly(zone: &str, anchor: u8) -> Policy {
    CalendarWindow::month(zone).anchor(anchor).policy("monthly", LIMIT)
}

fn boundaries(policy: &Policy) -> &'static [u64] {
    match policy.algorithm() {
        Algorithm::CalendarWindow { boundaries } => boundaries.as_micros(),
        other => panic!("{other:?}"),
    }
}

/// The next time to ask: often at a boundary of a version, or a microsecond before.
fn next_time(random: &mut Random, now: u64, versions: &[Policy]) -> u64 {
    let version = &versions[usize::try_from(random.below(versions.len() as u64)).unwrap()];
    let all = boundaries(version);
    let boundary = all[all.partition_point(|at| *at <= now)];
    match random.below(4) {
        0 => boundary,
        1 => (boundary - 1).max(now + 1),
        _ => now + 1 + random.below(20 * DAY),
    }
}

/// Fails if more was granted within any time than its boundaries allow. A grant is a time and its
/// units.
fn check(grants: &[(u64, u64)], versions: &[Policy], what: &str) {
    let mut ends: Vec<u64> = versions.iter().flat_map(boundaries).copied().collect();
    ends.sort_unstable();
    ends.dedup();
    let (mut least, mut granted) = (i128::MAX, 0);
    for (at, units) in grants {
        // What all boundaries until now allow, without the first window.
        let allowed = i128::from(LIMIT) * ends.partition_point(|end| end <= at) as i128;
        // Of all times from which one may count, that with the least granted before.
        least = least.min(granted - allowed);
        granted += i128::from(*units);
        let most = granted - allowed - least;
        assert!(most <= i128::from(LIMIT), "{what}: {} too many until {at}", most - i128::from(LIMIT));
    }
}

/// As often as an operator edits: each of 31 anchors and 8 zones, back and forth with one or two
/// others, over twenty years.
#[tokio::test]
async fn twenty_years_of_edits_forgive_no_window() {
    for (zone_at, zone) in ZONES.iter().enumerate() {
        for anchor in 1..=31 {
            let mut random = Random::new(100 * zone_at as u64 + u64::from(anchor));
            let mut versions = vec![monthly(zone, anchor)];
            for _ in 0..=random.below(2) {
                let other = u8::try_from(1 + random.below(31)).unwrap();
                versions.push(monthly(random.one_of(&ZONES), other));
            }
            let time = ManualClock::new(Timestamp::from_micros(START));
            let store = MemoryStore::builder().clock(&time).build();
            let mut grants = Vec::new();
            while time.now().as_micros() < START + TWENTY_YEARS {
                let now = next_time(&mut random, time.now().as_micros(), &versions);
                time.set(Timestamp::from_micros(now));
                let mut units = 0;
                for _ in 0..1 + random.below(3) {
                    let version = &versions[usize::try_from(random.below(versions.len() as u64)).unwrap()];
                    let most = u32::try_from(1 + random.below(LIMIT)).unwrap();
                    let ada = Key::from("ada");
                    let set = [Check::new(version, &ada, 1)];
                    let verdict = store.acquire(&set, Times::up_to(most)).wait().await.unwrap();
                    units += u64::from(verdict.times());
                }
                grants.push((now, units));
            }
            check(&grants, &versions, &format!("{zone} {anchor}"));
        }
    }
}

/// A policy that resets today forgives nothing.
#[tokio::test]
async fn an_edit_takes_effect_when_the_running_window_ends() {
    // 2026-01-20: the running window ends on February 1.
    let time = ManualClock::new(Timestamp::from_micros(START + 19 * DAY));
    let store = MemoryStore::builder().clock(&time).build();
    let first = monthly("UTC", 1);
    assert!(acquire(&store, &first, "ada", LIMIT).await.is_granted());
    for (zone, anchor) in [("UTC", 21), ("Pacific/Apia", 1), ("UTC", 20), ("America/New_York", 31)] {
        let wait = acquire(&store, &monthly(zone, anchor), "ada", 1).await.wait();
        assert_eq!(wait, Wait::For(Duration::from_micros(12 * DAY)), "{zone} {anchor}");
    }
    time.advance(Duration::from_micros(12 * DAY));
    let edited = monthly("UTC", 21);
    assert!(acquire(&store, &edited, "ada", LIMIT).await.is_granted());
    let wait = acquire(&store, &edited, "ada", 1).await.wait();
    assert_eq!(wait, Wait::For(Duration::from_micros(20 * DAY)), "until February 21");
}

async fn refund(store: &impl Store<Error: std::fmt::Debug>, policy: &Policy, units: u64, stamp: Stamp) {
    let grant = Grant { policy, key: &Key::from("ada"), units, stamp, share: None };
    store.refund(&[grant]).await.unwrap();
}

/// What a store answers at each step of a history with edits and refunds.
async fn answers(store: &impl Store<Error: std::fmt::Debug>, time: &ManualClock, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let versions: Vec<Policy> = [("UTC", 1), ("UTC", 15), ("Pacific/Apia", 31), ("America/New_York", 30)]
        .map(|(zone, anchor)| monthly(zone, anchor))
        .into();
    let (mut stamps, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..400 {
        let now = time.now().as_micros();
        let next = match random.below(8) {
            // A clock that steps back by up to 80 days.
            0 => now - random.below(80 * DAY),
            1..=3 => next_time(&mut random, now, &versions),
            _ => now,
        };
        time.set(Timestamp::from_micros(next));
        let version = &versions[usize::try_from(random.below(4)).unwrap()];
        if let (0, Some(stamp)) = (random.below(4), stamps.pop()) {
            refund(store, version, 1, stamp).await;
        }
        let verdict = acquire(store, version, "ada", 1).await;
        if verdict.is_granted() {
            stamps.push(verdict.each()[0].stamp());
        }
        answers.push(format!("{next} {:?} {:?}", verdict.times(), verdict.each()));
    }
    answers
}

/// Both write their own arithmetic: steps of the clock, edits and refunds.
#[tokio::test]
async fn memory_and_redis_answer_alike_over_edits() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let server = Server::start(kind).unwrap();
        for seed in 0..8 {
            let time = ManualClock::new(Timestamp::from_micros(START));
            let memory = MemoryStore::builder().clock(&time).build();
            let expected = answers(&memory, &time, seed).await;
            time.set(Timestamp::from_micros(START));
            let prefix = seed.to_string();
            let store =
                RedisStore::builder(&server.url()).prefix(&prefix).clock(&time).connect().await.unwrap();
            assert_eq!(answers(&store, &time, seed).await, expected, "{kind}, seed {seed}");
        }
    }
}

/// Earlier versions stored the start of the window under another name.
#[tokio::test]
async fn a_window_of_an_earlier_version_counts_until_its_end() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let time = server.command(&["TIME"]).unwrap();
    let now = time.lines().next().unwrap().parse::<u64>().unwrap() * 1_000_000;
    let (start, end) = (now - 10 * DAY, now + 20 * DAY);
    let boundaries = Boundaries::new(vec![start, end].leak());
    let policy = CalendarWindow::month("UTC").policy("monthly", LIMIT);
    let policy = policy.with_algorithm(Algorithm::CalendarWindow { boundaries });
    let name = |key: &str, form: &str| format!("tollgate:2:{{={key}}}:monthly~calendar-window~31d{form}");
    let of_earlier = |key: &str, used: u64| {
        let state = format!("{used}{start}");
        server.command(&["SET", &name(key, ""), &state, "PXAT", &(end / 1_000).to_string()]).unwrap();
    };
    of_earlier("ada", 2);
    of_earlier("bob", LIMIT);
    let granted = acquire(&store, &policy, "ada", 1).await;
    assert_eq!((granted.times(), granted.each()[0].remaining()), (1, 0));
    assert_eq!(granted.each()[0].stamp().micros(), end);
    assert_eq!(server.command(&["GET", &name("ada", "~ends")]).unwrap(), format!("3{end}"));
    assert!(matches!(acquire(&store, &policy, "ada", 1).await.wait(), Wait::For(_)));
    // A refusal writes nothing.
    assert!(matches!(acquire(&store, &policy, "bob", 1).await.wait(), Wait::For(_)));
    assert_eq!(server.command(&["EXISTS", &name("bob", "~ends")]).unwrap(), "0");
    for key in ["ada", "bob"] {
        store.reset(&Key::from(key), &[&policy]).await.unwrap();
        assert!(acquire(&store, &policy, key, LIMIT).await.is_granted(), "{key} after a reset");
    }
}
