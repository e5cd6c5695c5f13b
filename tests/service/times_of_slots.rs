//! Slots with a time to live: how they are renewed, and when their holders hear that they are lost.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep};
use tollgate::store::Renewal;
use tollgate::{Key, Limiter, MemoryStore, Outcome, Permit, Policy};
use tollgate_tests::{Later, Leasing, poll_once};

const TTL: Duration = Duration::from_secs(15);

fn jobs(limit: u64) -> (Limiter<Leasing>, Leasing) {
    let store = Leasing::new(MemoryStore::new());
    (Limiter::new([Policy::in_flight("jobs", limit).with_ttl(TTL)]).store(store.clone()), store)
}

async fn started(jobs: &Limiter<Leasing>) -> Permit {
    jobs.check(&Key::from("ada"), 1).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_renewed_as_long_as_it_is_held() {
    let (jobs, store) = jobs(1);
    let permit = started(&jobs).await;
    sleep(20 * TTL).await;
    assert!(!permit.slot().is_lost());
    let calls = store.renewals(|renewals| renewals.calls.len());
    // After a third of a time to live, or up to a fifteenth earlier.
    assert!((57..=76).contains(&calls), "{calls}");
    drop(permit);
    sleep(TTL).await;
    let known = store.renewals(|renewals| (renewals.calls.len() - calls, renewals.released));
    assert_eq!(known, (0, 1), "renewals of a slot that was released, and releases");
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_within_a_time_to_live_that_no_renewal_succeeds() {
    let (jobs, store) = jobs(1);
    let begin = Instant::now();
    let permit = started(&jobs).await;
    sleep(2 * TTL).await;
    store.renewals(|renewals| renewals.answer = Renewal::Unanswered);
    let last = Instant::now();
    permit.slot().lost().await;
    assert!(last.elapsed() <= TTL && begin.elapsed() >= 2 * TTL + TTL / 2, "{:?}", begin.elapsed());
    assert!(permit.slot().is_lost());
    // A holder may know it.
    store.renewals(|renewals| renewals.answer = Renewal::Held);
    sleep(2 * TTL).await;
    assert!(permit.slot().is_lost(), "what is lost stays lost");
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_at_once_that_others_have_its_slot() {
    let (jobs, store) = jobs(1);
    let begin = Instant::now();
    let permit = started(&jobs).await;
    store.renewals(|renewals| renewals.answer = Renewal::Lost);
    permit.slot().lost().await;
    assert!(begin.elapsed() <= TTL / 3, "{:?}", begin.elapsed());
    assert_eq!(store.renewals(|renewals| renewals.calls.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_ends_during_its_renewal_is_released_after_it() {
    let (jobs, store) = jobs(1);
    let permit = started(&jobs).await;
    store.renewals(|renewals| renewals.wait = true);
    sleep(TTL / 2).await;
    assert_eq!(store.renewals(|renewals| renewals.calls.len()), 1);
    let slot = permit.slot().clone();
    drop(permit);
    slot.release();
    assert!(slot.is_lost());
    sleep(TTL / 5).await;
    assert_eq!(store.renewals(|renewals| renewals.released), 0, "the renewal might take it again");
    store.let_pass();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(store.renewals(|renewals| renewals.released), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_holds_up_no_other() {
    let (jobs, store) = jobs(2);
    let first = started(&jobs).await;
    store.renewals(|renewals| renewals.wait = true);
    sleep(TTL / 2).await;
    store.renewals(|renewals| renewals.wait = false);
    let second = started(&jobs).await;
    sleep(2 * TTL).await;
    assert!(first.slot().is_lost());
    assert!(!second.slot().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_misses_three_looks_is_replaced_by_the_next_claim() {
    let (jobs, _) = jobs(9);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let mut held = vec![started(&jobs).await];
    yield_now().await;
    // The time passes, and no task of the runtime is polled.
    poll_once(advance(TTL / 5)).await;
    held.push(started(&jobs).await);
    assert_eq!(tasks(), 1, "the third look is due only now");
    poll_once(advance(Duration::from_millis(1))).await;
    held.push(started(&jobs).await);
    assert_eq!(tasks(), 2);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), 1, "the late one ends");
}

#[tokio::test(start_paused = true)]
async fn many_slots_are_renewed_in_few_calls() {
    let (jobs, store) = jobs(10_000);
    let mut held = Vec::new();
    for n in 0..10_000_u32 {
        held.push(started(&jobs).await);
        if n % 10 == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }
    store.renewals(|renewals| renewals.calls.clear());
    sleep(TTL).await;
    let calls = store.renewals(|renewals| renewals.calls.clone());
    // Three renewals of each, and 15 looks.
    assert!(calls.len() <= 16, "{}", calls.len());
    assert!((29_000..=45_000).contains(&calls.iter().sum::<usize>()), "{calls:?}");
    assert!(held.iter().all(|permit| !permit.slot().is_lost()));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_gives_its_slots_back() {
    let (jobs, store) = jobs(100);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(started(&jobs).await);
    }
    // Some are being renewed.
    store.renewals(|renewals| renewals.wait = true);
    sleep(TTL / 2).await;
    held.truncate(90);
    let giving = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.close(TTL).await }
    });
    sleep(Duration::from_millis(1)).await;
    assert!(!giving.is_finished());
    store.let_pass();
    assert!(giving.await.unwrap().is_nothing());
    assert!(held.iter().all(|permit| permit.slot().is_lost()));
    assert_eq!(store.renewals(|renewals| renewals.released), 100);
    drop(held);
    assert_eq!(store.renewals(|renewals| renewals.released), 100);
}

#[test]
fn a_runtime_that_stops_leaves_renewals_to_the_next() {
    let (jobs, store) = jobs(2);
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let first = runtime();
    let permit = first.block_on(started(&jobs));
    drop(first);
    runtime().block_on(async {
        let other = started(&jobs).await;
        sleep(2 * TTL).await;
        assert!(!other.slot().is_lost());
        assert!(store.renewals(|renewals| renewals.calls.len()) >= 5);
    });
    drop(permit);
    assert_eq!(store.renewals(|renewals| renewals.released), 2);
}

/// A caller that asked the store, and left before its answer.
#[tokio::test(start_paused = true)]
async fn each_release_that_observers_see_was_allowed_before() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let outcomes = Arc::clone(&seen);
    let jobs = Limiter::new([Policy::in_flight("jobs", 1)])
        .store(Later::deciding_first(MemoryStore::new()))
        .observe(move |decision| outcomes.lock().unwrap().push(decision.outcome()));
    let key = Key::from("ada");
    let mut leaves = Box::pin(jobs.check(&key, 1));
    assert!(leaves.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(leaves);
    sleep(TTL).await;
    drop(jobs.check(&key, 1).await.unwrap());
    sleep(TTL).await;
    assert_eq!(*seen.lock().unwrap(), [Outcome::Allowed, Outcome::Released]);
}

#[test]
fn a_runtime_that_nothing_drives_holds_up_no_renewal_of_another() {
    let (jobs, _store) = jobs(2);
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let idle = runtime();
    let first = idle.block_on(started(&jobs));
    runtime().block_on(async {
        // A paused clock of another runtime begins at the same time.
        sleep(TTL).await;
        let second = started(&jobs).await;
        sleep(2 * TTL).await;
        assert!(!second.slot().is_lost());
    });
    drop((first, idle));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_runtime_stops_ends_without_an_answer() {
    let (jobs, store) = jobs(2);
    store.renewals(|renewals| renewals.wait = true);
    let slot = std::thread::scope(|scope| {
        let of_another = scope.spawn(|| {
            let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let permit = other.block_on(started(&jobs));
            permit.slot().clone()
        });
        of_another.join().unwrap()
    });
    slot.release();
    assert_eq!(store.renewals(|renewals| renewals.released), 1);
}
