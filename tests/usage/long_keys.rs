//! Keys of any length, which callers can choose: what is kept of them, and where they are named.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::StoreExt;
use tollgate::store::{Check, Store, Times};
use tollgate::usage::UsageError;
use tollgate::usage::top_keys::{MemoryLog, Recording, TopKeys, UsageCounter, UsageLog, UsageOf};
use tollgate::{Key, MemoryStore, Policy, Quota};
use tollgate_tests::{clock, within};

use crate::usage::{HOUR, MINUTE, ample, ask, counts};

/// A key with a text of 30,000 bytes.
fn long(n: u32) -> String {
    format!("{n:04}{}", "%".repeat(10_000))
}

#[tokio::test]
async fn pages_name_long_keys_by_digests() {
    let (time, log) = (clock(), MemoryLog::new());
    let usage = TopKeys::new(log.clone()).clock(&time);
    let recorder = usage.record(Recording::default().clock(&time));
    let store = MemoryStore::new().count_usage(&recorder);
    let once = Policy::new("once", Quota::per_day(1));
    for n in 0..300 {
        assert!(ask(&store, &once, &long(n)).await);
        assert!(!ask(&store, &once, &long(n)).await);
    }
    assert!(!ask(&store, &once, &long(7)).await);
    recorder.flush().await.unwrap();
    let mut pages = Vec::new();
    log.read(time.now().as_micros() / 60_000_000, |page| pages.push(page.to_owned())).await.unwrap();
    let [page] = &pages[..] else { panic!("a page") };
    assert_eq!(page.lines().filter(|line| line.contains("denied")).count(), 100);
    assert!(page.len() <= 40_000, "{} bytes", page.len());
    let key = Key::from(long(7));
    assert_eq!(counts(&usage.top_denied(1, HOUR).await.unwrap()), [(&*log.name(&key), 2)]);
    let minutes = usage.series(UsageOf::Key(&key), MINUTE).await.unwrap();
    assert_eq!(minutes[0].denied, 2);
}

/// A log that notes the lengths of the keys that it names. Each time it counts a decision.
#[derive(Clone, Default)]
struct Naming {
    log: MemoryLog,
    named: Arc<Mutex<Vec<usize>>>,
    store: Arc<OnceLock<UsageCounter<MemoryStore>>>,
}

impl UsageLog for Naming {
    fn name(&self, key: &Key) -> String {
        self.named.lock().unwrap().push(key.as_encoded().len());
        if let Some(store) = self.store.get() {
            let (policy, key) = (ample("other"), Key::global());
            drop(store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE));
        }
        self.log.name(key)
    }

    async fn write(
        &self,
        minute: u64,
        process: u64,
        page: &str,
        keep_for: Duration,
    ) -> Result<(), UsageError> {
        self.log.write(minute, process, page, keep_for).await
    }

    async fn read(&self, minute: u64, each: impl FnMut(&str) + Send) -> Result<(), UsageError> {
        self.log.read(minute, each).await
    }
}

#[tokio::test]
async fn a_long_key_is_named_when_it_is_counted_and_not_kept() {
    let (time, log) = (clock(), Naming::default());
    let recorder = TopKeys::new(log.clone()).record(Recording::default().clock(&time));
    let store = MemoryStore::new().count_usage(&recorder);
    for key in ["ada", &long(1)] {
        ask(&store, &ample("api"), key).await;
    }
    log.named.lock().unwrap().clear();
    recorder.flush().await.unwrap();
    assert_eq!(*log.named.lock().unwrap(), [4], "the tag and the text of the short key");
}

#[tokio::test]
async fn a_long_key_is_named_once_for_all_rules_of_a_request() {
    let (time, log) = (clock(), Naming::default());
    let usage = TopKeys::new(log.clone()).clock(&time);
    let recorder = usage.record(Recording::default().clock(&time));
    let store = MemoryStore::new().count_usage(&recorder);
    let policies = ["a", "b", "c", "d"].map(ample);
    let (key, other) = (Key::from(long(1)), Key::from(long(2)));
    let keys = [&key, &key, &other, &key];
    let set: Vec<Check<'_>> =
        policies.iter().zip(keys).map(|(policy, key)| Check::new(policy, key, 1)).collect();
    assert!(store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
    assert_eq!(log.named.lock().unwrap().len(), 2);
    recorder.flush().await.unwrap();
    let top = usage.top_allowed(9, MINUTE).await.unwrap();
    let of = |key: &Key| top.iter().filter(|of| of.key == log.log.name(key)).count();
    assert_eq!((of(&key), of(&other), top.len()), (3, 1, 4));
}

/// If a name was made under the lock of the counts, this decision would wait for itself.
#[test]
fn keys_are_named_while_decisions_are_counted() {
    within(MINUTE, || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (time, log) = (clock(), Naming::default());
            let usage = TopKeys::new(log.clone()).clock(&time);
            let recorder = usage.record(Recording::default().clock(&time));
            let store = MemoryStore::new().count_usage(&recorder);
            let _ = log.store.set(store.clone());
            for _ in 0..2 {
                for key in ["ada", &long(1)] {
                    ask(&store, &ample("api"), key).await;
                }
                recorder.flush().await.unwrap();
                // The next flush names the keys of a closed minute.
                time.advance(MINUTE);
            }
            recorder.flush().await.unwrap();
            let minutes = usage.series(UsageOf::Policy("api"), 3 * MINUTE).await.unwrap();
            assert_eq!(minutes.iter().map(|minute| minute.allowed).collect::<Vec<_>>(), [2, 2, 0]);
        });
    });
}
