//! The error of the top keys, for a million decisions over keys of a Zipf distribution.

use tollgate::MemoryStore;
use tollgate::StoreExt;
use tollgate::usage::top_keys::{KeyUsage, Recording, UsageOf};
use tollgate_conformance::random::Random;

use crate::usage::{HOUR, MINUTE, ample, ask, in_memory};

const DECISIONS: u64 = 1_000_000;
const KEYS: usize = 100_000;
/// What a process watches by default.
const WATCHED: u64 = 1_000;

/// Numbers of keys: the first is twice as frequent as the second, three times as the third.
fn zipf() -> impl FnMut() -> usize {
    let mut random = Random::new(0x21bf);
    let mut sum = 0;
    let sums: Vec<u64> = (1..=KEYS as u64)
        .map(|rank| {
            sum += (1 << 40) / rank;
            sum
        })
        .collect();
    move || {
        let at = random.below(sum);
        sums.partition_point(|sum| *sum <= at)
    }
}

/// Counts a million decisions. Returns the true counts, most frequent first, and the top 20.
async fn run(recording: Recording, minutes: u64, noise: u64) -> (Vec<(String, u64)>, Vec<KeyUsage>) {
    let (usage, recorder, time) = in_memory(recording);
    let store = MemoryStore::new().count_usage(&recorder);
    let (policy, mut next) = (ample("api"), zipf());
    let mut due = vec![0; KEYS];
    for n in 0..DECISIONS {
        if n > 0 && n % (DECISIONS / minutes) == 0 {
            time.advance(MINUTE);
        }
        let key = next();
        due[key] += 1;
        assert!(ask(&store, &policy, &key.to_string()).await);
    }
    recorder.flush().await.unwrap();
    let series = usage.series(UsageOf::Policy("api"), HOUR).await.unwrap();
    let total: u64 = series.iter().map(|minute| minute.allowed).sum();
    assert!(total.abs_diff(DECISIONS) <= noise, "{total} decisions");
    let mut due: Vec<(String, u64)> =
        due.into_iter().enumerate().map(|(key, count)| (format!("={key}"), count)).collect();
    due.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
    (due, usage.top_allowed(20, HOUR).await.unwrap())
}

/// Every key of the true top is listed, unless its count is within the error of the last that is.
fn has_the_top(due: &[(String, u64)], top: &[KeyUsage], error: u64) {
    assert_eq!(top.len(), 20);
    for (key, count) in &due[..20] {
        match top.iter().find(|of| of.key == *key) {
            Some(of) => {
                assert!(of.count.abs_diff(*count) <= error, "{count} of {key}, counted {of:?}");
                assert!((of.at_least..=of.at_most).contains(count), "{count} of {key}, counted {of:?}");
            }
            None => assert!(*count <= top[19].count + error, "{count} of {key} is not listed"),
        }
    }
}

#[tokio::test]
async fn the_top_keys_are_exact_up_to_the_stated_error() {
    let (due, top) = run(Recording::default().one_in(1), 1, 0).await;
    has_the_top(&due, &top, DECISIONS / WATCHED);
    for of in &top {
        let count = due.iter().find(|(key, _)| *key == of.key).unwrap().1;
        assert!(of.count >= count, "Space-Saving never counts too little: {count}, {of:?}");
    }
}

#[tokio::test]
async fn the_errors_of_minutes_add_up_to_the_stated_error() {
    let (due, top) = run(Recording::default().one_in(1), 10, 0).await;
    has_the_top(&due, &top, DECISIONS / WATCHED);
}

#[tokio::test]
async fn sampled_top_keys_are_within_five_standard_deviations() {
    let (due, top) = run(Recording::default(), 2, 5 * (15 * DECISIONS).isqrt()).await;
    let noise = 5 * (15 * due[0].1).isqrt();
    has_the_top(&due, &top, DECISIONS / WATCHED + noise);
}

#[tokio::test]
async fn few_decisions_are_counted_exactly_although_sampling_is_on() {
    let (usage, recorder, time) = in_memory(Recording::default().one_in(1_000));
    let store = MemoryStore::new().count_usage(&recorder);
    for _ in 0..3 {
        for n in 0..5_000 {
            ask(&store, &ample("api"), ["ada", "bob"][n % 2]).await;
        }
        recorder.flush().await.unwrap();
        time.advance(MINUTE);
    }
    for of in usage.top_allowed(5, HOUR).await.unwrap() {
        assert_eq!((of.count, of.at_least, of.at_most), (7_500, 7_500, 7_500), "{of:?}");
    }
}

/// A key that a page may have dropped can have as many decisions as the least that it lists.
#[tokio::test]
async fn a_key_that_some_pages_do_not_list_has_a_higher_bound() {
    let (usage, recorder, time) = in_memory(Recording::default().keys(1));
    let store = MemoryStore::new().count_usage(&recorder);
    for (ada, bob) in [(5, 3), (2, 4)] {
        for (key, times) in [("ada", ada), ("bob", bob)] {
            for _ in 0..times {
                ask(&store, &ample("api"), key).await;
            }
        }
        recorder.flush().await.unwrap();
        time.advance(MINUTE);
    }
    let top = usage.top_allowed(2, HOUR).await.unwrap();
    let bounds: Vec<_> = top.iter().map(|of| (&*of.key, of.at_least, of.at_most)).collect();
    assert_eq!(bounds, [("=ada", 5, 7), ("=bob", 4, 7)]);
}

#[tokio::test]
async fn the_first_ten_thousand_decisions_of_a_minute_are_counted_one_by_one() {
    let (usage, recorder, _) = in_memory(Recording::default());
    let store = MemoryStore::new().count_usage(&recorder);
    let policy = ample("api");
    let counted = async |decisions: u32| {
        for _ in 0..decisions {
            ask(&store, &policy, "ada").await;
        }
        recorder.flush().await.unwrap();
        let top = usage.top_allowed(1, HOUR).await.unwrap();
        (top[0].at_least, top[0].count, top[0].at_most)
    };
    assert_eq!(counted(10_000).await, (10_000, 10_000, 10_000));
    let (at_least, count, at_most) = counted(500).await;
    assert!(at_least < count && count < at_most, "{count} decisions are not sampled");
}
