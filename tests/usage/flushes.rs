//! When counts are stored, and what is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tollgate::StoreExt;
use tollgate::store::ErrorKind;
use tollgate::usage::UsageError;
use tollgate::usage::top_keys::{MemoryLog, Recording, TopKeys, UsageLog, UsageOf};
use tollgate::{Key, MemoryStore};
use tollgate_tests::{Log, clock};

use crate::usage::{HOUR, MINUTE, ample, ask, counts, in_memory};

#[tokio::test(start_paused = true)]
async fn a_task_stores_the_counts_every_ten_seconds() {
    let (usage, recorder, _) = in_memory(Recording::default());
    let store = MemoryStore::new().count_usage(&recorder);
    for flushed in [1, 2] {
        ask(&store, &ample("api"), "ada").await;
        sleep(Duration::from_millis(10_001)).await;
        assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", flushed)]);
    }
    // The task ends with the recorder and its stores.
    drop((recorder, store));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test]
async fn a_flush_replaces_what_the_process_stored_before() {
    let (usage, recorder, time) = in_memory(Recording::default());
    let store = MemoryStore::new().count_usage(&recorder);
    for _ in 0..3 {
        ask(&store, &ample("api"), "ada").await;
        recorder.flush().await.unwrap();
        recorder.flush().await.unwrap();
    }
    assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", 3)]);
    time.advance(MINUTE);
    ask(&store, &ample("api"), "ada").await;
    recorder.flush().await.unwrap();
    let minutes = usage.series(UsageOf::Key(&Key::from("ada")), 2 * MINUTE).await.unwrap();
    assert_eq!(minutes.iter().map(|minute| minute.allowed).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(counts(&usage.top_allowed(5, MINUTE).await.unwrap()), [("=ada", 1)], "the last minute only");
}

#[tokio::test]
async fn the_counts_of_processes_add_up() {
    let time = clock();
    let usage = TopKeys::new(MemoryLog::new()).clock(&time);
    for times in [3, 4] {
        let recorder = usage.record(Recording::default().clock(&time));
        let store = MemoryStore::new().count_usage(&recorder);
        for _ in 0..times {
            ask(&store, &ample("api"), "ada").await;
        }
        recorder.flush().await.unwrap();
    }
    assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", 7)]);
}

#[tokio::test]
async fn old_minutes_are_forgotten() {
    let (usage, recorder, time) = in_memory(Recording::default().keep_for(2 * MINUTE));
    let store = MemoryStore::new().count_usage(&recorder);
    for _ in 0..5 {
        ask(&store, &ample("api"), "ada").await;
        recorder.flush().await.unwrap();
        time.advance(MINUTE);
    }
    assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", 3)]);
}

/// A log that can fail.
#[derive(Clone)]
struct Broken {
    log: MemoryLog,
    fails: Arc<AtomicBool>,
}

impl UsageLog for Broken {
    fn name(&self, key: &Key) -> String {
        self.log.name(key)
    }

    async fn write(
        &self,
        minute: u64,
        process: u64,
        page: &str,
        keep_for: Duration,
    ) -> Result<(), UsageError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(UsageError::Store {
                kind: ErrorKind::Unavailable,
                message: "unreachable".to_owned(),
            });
        }
        self.log.write(minute, process, page, keep_for).await
    }

    async fn read(&self, minute: u64, each: impl FnMut(&str) + Send) -> Result<(), UsageError> {
        self.log.read(minute, each).await
    }
}

#[tokio::test]
async fn counts_of_up_to_ten_minutes_wait_for_a_log_that_fails() {
    let (time, log) = (clock(), Broken { log: MemoryLog::new(), fails: Arc::new(AtomicBool::new(true)) });
    let usage = TopKeys::new(log.clone()).clock(&time);
    let recorder = usage.record(Recording::default().clock(&time));
    let store = MemoryStore::new().count_usage(&recorder);
    for minute in 0..13 {
        for _ in 0..=minute {
            ask(&store, &ample("api"), "ada").await;
        }
        assert!(recorder.flush().await.is_err());
        time.advance(MINUTE);
    }
    log.fails.store(false, Ordering::Relaxed);
    recorder.flush().await.unwrap();
    let minutes = usage.series(UsageOf::Policy("api"), 14 * MINUTE).await.unwrap();
    let allowed: Vec<u64> = minutes.iter().map(|minute| minute.allowed).collect();
    assert_eq!(allowed, [0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0], "the oldest are lost");
}

/// Without a further decision.
#[tokio::test(start_paused = true)]
async fn a_task_stores_again_what_a_log_did_not_take() {
    let (time, log) = (clock(), Broken { log: MemoryLog::new(), fails: Arc::new(AtomicBool::new(true)) });
    let usage = TopKeys::new(log.clone()).clock(&time);
    let store = MemoryStore::new().count_usage(&usage.record(Recording::default().clock(&time)));
    ask(&store, &ample("api"), "ada").await;
    sleep(Duration::from_secs(25)).await;
    log.fails.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", 1)]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "nothing is left to store");
}

/// A log that stores a page some time after it was asked.
#[derive(Clone)]
struct Slow(MemoryLog);

impl UsageLog for Slow {
    fn name(&self, key: &Key) -> String {
        self.0.name(key)
    }

    async fn write(
        &self,
        minute: u64,
        process: u64,
        page: &str,
        keep_for: Duration,
    ) -> Result<(), UsageError> {
        sleep(Duration::from_millis(300)).await;
        self.0.write(minute, process, page, keep_for).await
    }

    async fn read(&self, minute: u64, each: impl FnMut(&str) + Send) -> Result<(), UsageError> {
        self.0.read(minute, each).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_the_pages_of_the_one_before() {
    let time = clock();
    let usage = TopKeys::new(Slow(MemoryLog::new())).clock(&time);
    let recorder = usage.record(Recording::default().clock(&time));
    let store = MemoryStore::new().count_usage(&recorder);
    ask(&store, &ample("api"), "ada").await;
    time.advance(MINUTE);
    let of_task = tokio::spawn({
        let recorder = recorder.clone();
        async move { recorder.flush().await }
    });
    sleep(Duration::from_millis(100)).await;
    recorder.flush().await.unwrap();
    // The process ends.
    of_task.abort();
    assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_flush_writes_the_pages_of_one_that_was_dropped() {
    let time = clock();
    let usage = TopKeys::new(Slow(MemoryLog::new())).clock(&time);
    let recorder = usage.record(Recording::default().clock(&time));
    let store = MemoryStore::new().count_usage(&recorder);
    ask(&store, &ample("api"), "ada").await;
    time.advance(MINUTE);
    let dropped = tokio::time::timeout(Duration::from_millis(100), recorder.flush()).await;
    assert!(dropped.is_err());
    recorder.flush().await.unwrap();
    assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", 1)]);
}

/// The runtime in which a recorder is made may serve only to start the program.
#[test]
fn another_runtime_stores_the_counts_if_the_first_does_not_run() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    for is_dropped in [true, false] {
        let first = runtime();
        let often = Recording::default().flush_every(Duration::from_millis(100));
        let (usage, recorder, time) = first.block_on(async { in_memory(often) });
        let store = MemoryStore::new().count_usage(&recorder);
        let first = (!is_dropped).then_some(first);
        let (log, _guard) = Log::of_thread();
        runtime().block_on(async {
            ask(&store, &ample("api"), "ada").await;
            assert_eq!(log.lines(), [""; 0], "the first flush is not due yet");
            time.advance(2 * MINUTE);
            ask(&store, &ample("api"), "ada").await;
            let [line] = &log.lines()[..] else { panic!("{:?}", log.lines()) };
            assert!(line.contains("WARN") && line.contains("counts of usage are not stored"), "{line}");
            for flushed in [2, 3] {
                let stored = async {
                    while counts(&usage.top_allowed(5, HOUR).await.unwrap()) != [("=ada", flushed)] {
                        sleep(Duration::from_millis(10)).await;
                    }
                };
                timeout(MINUTE, stored).await.expect("the second runtime stores the counts");
                ask(&store, &ample("api"), "ada").await;
            }
            assert_eq!(log.lines().len(), 1, "the second runtime keeps the task");
        });
        drop(first);
    }
}
