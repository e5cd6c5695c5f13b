//! Corrections that a failing store has not executed are kept, and sent once it answers.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tollgate::failure::{Answering, CorrectionCounts, Fixed, Guarded};
use tollgate::store::{Check, End, Grant, Reply, Settled, Store, Times, Verdict};
use tollgate::time::{Clock, ManualClock};
use tollgate::{Algorithm, Key, Limiter, MemoryStore, Permit, Policy, Question, Quota, Share, StoreExt};
use tollgate_conformance::random::Random;
use tollgate_test_servers::short_or_long;
use tollgate_tests::{
    Connection, EVERY_ALGORITHM, Failing, Fault, a_minute, keeps_the_contract, per_minute, store,
};

use crate::failure::{FAILURES, TIMEOUT};

/// The store is not asked, so nothing is executed.
const REFUSED: Connection = Connection::Fails(Fault::Refused);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(300);
/// Longer than the longest pause between two attempts.
const PAUSE: Duration = Duration::from_secs(3);

type Keeping = Answering<Guarded<Failing>, Fixed>;

fn key(name: &str) -> Key {
    Key::from(name)
}

/// A store that stands still at the time of this process, by whose clock windows are over.
fn failing() -> Failing {
    Failing::new(store(&ManualClock::new(Clock::system().now())), Connection::Works)
}

fn keeping(inner: &Failing, most: usize) -> Keeping {
    inner.clone().timeout(TIMEOUT).fail_closed().keep_corrections(most)
}

fn tokens(store: &Keeping, algorithm: Algorithm) -> Limiter<Keeping> {
    Limiter::new([a_minute("tokens", algorithm, 1_000)]).store(store.clone())
}

async fn reserve(limiter: &Limiter<Keeping>, name: &str, units: u64) -> Permit {
    limiter.check(&key(name), units).await.unwrap()
}

async fn left(limiter: &Limiter<Keeping>, name: &str) -> u64 {
    limiter.look(&key(name)).await.unwrap().statuses()[0].remaining()
}

/// How many wait, were sent, expired, were refused, and are unknown.
fn counts(store: &Keeping) -> [u64; 5] {
    counts_of(store.kept_corrections())
}

fn counts_of(counts: CorrectionCounts) -> [u64; 5] {
    let CorrectionCounts { waiting, sent, expired, refused, unknown, .. } = counts;
    [waiting as u64, sent, expired, refused, unknown]
}

/// Settles a charge of 400 tokens during an outage.
async fn settle_later(inner: &Failing, limiter: &Limiter<Keeping>, name: &str, total: u64) -> Settled {
    let mut permit = reserve(limiter, name, 400).await;
    inner.set(REFUSED);
    let settled = permit.charge("tokens").settle(total).await;
    inner.set(Connection::Works);
    settled
}

fn kept(charged: u64, kept: u64) -> Settled {
    Settled { charged, kept, ..Settled::default() }
}

#[tokio::test(start_paused = true)]
async fn corrections_of_each_algorithm_are_sent_once_the_store_answers() {
    for algorithm in EVERY_ALGORITHM {
        let inner = failing();
        let store = keeping(&inner, 10);
        let limiter = tokens(&store, algorithm);
        assert_eq!(settle_later(&inner, &limiter, "ada", 137).await, kept(137, 263), "{algorithm:?}");
        assert_eq!(store.kept_corrections().waiting, 1, "{algorithm:?}");
        assert_eq!(left(&limiter, "ada").await, 600, "{algorithm:?}");
        sleep(PAUSE).await;
        assert_eq!(left(&limiter, "ada").await, 863, "{algorithm:?}");
        let has_debt = !matches!(algorithm, Algorithm::LeakyBucket { .. });
        let expected = match has_debt {
            true => kept(400, 50),
            false => Settled { charged: 400, forgiven: 50, ..Settled::default() },
        };
        assert_eq!(settle_later(&inner, &limiter, "ada", 450).await, expected, "{algorithm:?}");
        sleep(PAUSE).await;
        assert_eq!(left(&limiter, "ada").await, if has_debt { 413 } else { 463 }, "{algorithm:?}");
        assert_eq!(counts(&store), [0, 1 + u64::from(has_debt), 0, 0, 0], "{algorithm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_refunded_in_an_outage_is_refunded_after_it() {
    let inner = failing();
    let limiter = tokens(&keeping(&inner, 10), Algorithm::Gcra);
    let permit = reserve(&limiter, "ada", 400).await;
    inner.set(REFUSED);
    permit.refund().await;
    sleep(10 * PAUSE).await;
    inner.set(Connection::Works);
    sleep(PAUSE).await;
    assert_eq!(left(&limiter, "ada").await, 1_000);
}

#[tokio::test(start_paused = true)]
async fn credits_of_each_algorithm_in_an_outage_are_given_after_it() {
    for algorithm in EVERY_ALGORITHM {
        if matches!(algorithm, Algorithm::LeakyBucket { .. }) {
            continue;
        }
        let inner = failing();
        let store = keeping(&inner, 10);
        let limiter = tokens(&store, algorithm);
        let _permit = reserve(&limiter, "ada", 900).await;
        inner.set(REFUSED);
        for units in [100, 30, 5, 1, 1] {
            limiter.credit(("tokens", &key("ada"), units)).await;
        }
        inner.set(Connection::Works);
        assert_eq!(left(&limiter, "ada").await, 100, "{algorithm:?}");
        sleep(PAUSE).await;
        assert_eq!(left(&limiter, "ada").await, 237, "{algorithm:?}");
        let [waiting, sent, lost @ ..] = counts(&store);
        assert_eq!((waiting, lost), (0, [0; 3]), "{algorithm:?}");
        // Those of another eighth of the time do not merge.
        assert!(sent <= 2, "credits of a key are few corrections: {algorithm:?}: {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn debits_by_two_quotas_are_kept_apart() {
    let (ada, row) = (key("ada"), Quota::per_minute(10_000));
    // What is kept is in a table without an order.
    for _ in 0..8 {
        let inner = failing();
        let store = keeping(&inner, 10);
        let limiter = tokens(&store, Algorithm::FIXED_WINDOW);
        inner.set(REFUSED);
        limiter.debit(("tokens", &ada, 1_500)).await;
        limiter.debit(Question::new("tokens", &ada, 7_000).limit(row)).await;
        inner.set(Connection::Works);
        assert_eq!(store.kept_corrections().waiting, 2);
        sleep(PAUSE).await;
        let report = limiter.look_each(&[Question::new("tokens", &ada, 1).limit(row)]).await.unwrap();
        let left = report.get("tokens").unwrap().1.remaining();
        assert_eq!(left, 1_500, "together they would be above the debt of the smaller quota");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_released_in_an_outage_is_free_after_it() {
    let inner = failing();
    let store = keeping(&inner, 10);
    let exports = Limiter::new([Policy::in_flight("exports", 1)]).store(store.clone());
    let permit = exports.check(&key("ada"), 1).await.unwrap();
    inner.set(REFUSED);
    drop(permit);
    assert_eq!(store.kept_corrections().waiting, 1);
    inner.set(Connection::Works);
    assert!(exports.check(&key("ada"), 1).await.is_err(), "it is not released yet");
    sleep(PAUSE).await;
    assert!(exports.check(&key("ada"), 1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn charges_merge_by_key_and_keep_their_sum() {
    let inner = failing();
    let store = keeping(&inner, 4);
    let limiter = tokens(&store, Algorithm::Gcra);
    let mut permits = vec![reserve(&limiter, "bob", 10).await];
    for _ in 0..9 {
        permits.push(reserve(&limiter, "ada", 10).await);
    }
    inner.set(REFUSED);
    for permit in &mut permits {
        assert_eq!(permit.charge("tokens").settle(11).await, kept(10, 1));
    }
    // Those of another eighth of the time do not merge.
    assert!((2..=4).contains(&store.kept_corrections().waiting), "{:?}", counts(&store));
    inner.set(Connection::Works);
    sleep(PAUSE).await;
    assert_eq!((left(&limiter, "ada").await, left(&limiter, "bob").await), (901, 989));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_the_newest_is_refused_and_counted() {
    let inner = failing();
    let store = keeping(&inner, 1);
    let limiter = tokens(&store, Algorithm::Gcra);
    let (mut ada, mut bob) = (reserve(&limiter, "ada", 100).await, reserve(&limiter, "bob", 100).await);
    inner.set(REFUSED);
    assert_eq!(ada.charge("tokens").settle(110).await, kept(100, 10));
    let forgiven = Settled { charged: 100, forgiven: 10, ..Settled::default() };
    assert_eq!(bob.charge("tokens").settle(110).await, forgiven);
    assert_eq!(counts(&store), [1, 0, 0, 1, 0]);
    inner.set(Connection::Works);
    sleep(PAUSE).await;
    assert_eq!((left(&limiter, "ada").await, left(&limiter, "bob").await), (890, 900));
}

/// A correction that may have been executed is not sent again.
#[tokio::test(start_paused = true)]
async fn what_may_have_been_executed_is_never_kept() {
    for failure in FAILURES {
        let inner = failing();
        let store = keeping(&inner, 10);
        let limiter = tokens(&store, Algorithm::Gcra);
        let mut permit = reserve(&limiter, "ada", 400).await;
        inner.set(failure);
        let settled = permit.charge("tokens").settle(137).await;
        assert_eq!(settled, Settled { charged: 137, unknown: 263, ..Settled::default() }, "{failure:?}");
        assert_eq!(store.kept_corrections(), CorrectionCounts::default(), "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_later_and_not_answered_is_counted_as_unknown() {
    let inner = failing();
    let store = keeping(&inner, 10);
    let limiter = tokens(&store, Algorithm::Gcra);
    assert_eq!(settle_later(&inner, &limiter, "ada", 137).await, kept(137, 263));
    inner.set(Connection::Fails(Fault::Unreachable));
    sleep(PAUSE).await;
    assert_eq!(counts(&store), [0, 0, 0, 0, 1]);
    inner.set(Connection::Works);
    sleep(10 * PAUSE).await;
    assert_eq!(left(&limiter, "ada").await, 600);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_the_corrections_of_its_key() {
    let inner = failing();
    let store = keeping(&inner, 10);
    let limiter = tokens(&store, Algorithm::Gcra);
    let (mut ada, mut bob) = (reserve(&limiter, "ada", 100).await, reserve(&limiter, "bob", 100).await);
    inner.set(REFUSED);
    ada.charge("tokens").settle(500).await;
    bob.charge("tokens").settle(500).await;
    inner.set(Connection::Works);
    limiter.reset(&key("ada")).await;
    sleep(PAUSE).await;
    assert_eq!((left(&limiter, "ada").await, left(&limiter, "bob").await), (1_000, 500));
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_is_not_executed_forgets_no_correction() {
    for its_caller_leaves in [false, true] {
        let inner = failing();
        let store = keeping(&inner, 10);
        let limiter = tokens(&store, Algorithm::Gcra);
        let permit = reserve(&limiter, "ada", 400).await;
        inner.set(REFUSED);
        permit.refund().await;
        inner.set(Connection::FailsLater(Fault::Refused));
        let (user, limit) = (key("ada"), if its_caller_leaves { Duration::ZERO } else { PAUSE });
        assert_eq!(timeout(limit, limiter.reset(&user)).await.is_err(), its_caller_leaves);
        sleep(LOOK).await;
        inner.set(Connection::Works);
        sleep(PAUSE).await;
        assert_eq!(left(&limiter, "ada").await, 1_000, "{its_caller_leaves}");
    }
}

/// What is kept has no order, and a credit gives back what was used before.
#[tokio::test(start_paused = true)]
async fn a_credit_that_is_kept_finds_the_debit_before_it() {
    for _ in 0..8 {
        let inner = failing();
        let store = keeping(&inner, 10);
        let limiter = tokens(&store, Algorithm::Gcra);
        inner.set(REFUSED);
        limiter.debit(("tokens", &key("ada"), 500)).await;
        limiter.credit(("tokens", &key("ada"), 500)).await;
        inner.set(Connection::Works);
        sleep(PAUSE).await;
        assert_eq!(left(&limiter, "ada").await, 1_000);
    }
}

/// Refunds go through before charges do, such as while memory is full.
#[tokio::test(start_paused = true)]
async fn a_credit_waits_until_the_debit_before_it_is_charged() {
    let (inner, asked) = (failing(), Arc::new(AtomicU32::new(0)));
    let store = RefusesChecks(inner.clone(), 1..4, Arc::clone(&asked)).fail_closed().keep_corrections(10);
    let limiter = Limiter::new([per_minute("tokens", 1_000)]).store(store.clone());
    inner.set(REFUSED);
    limiter.debit(("tokens", &key("ada"), 500)).await;
    limiter.credit(("tokens", &key("ada"), 500)).await;
    inner.set(Connection::Works);
    sleep(10 * PAUSE).await;
    assert_eq!((asked.load(Ordering::Relaxed), counts_of(store.kept_corrections())), (5, [0, 2, 0, 0, 0]));
    assert_eq!(limiter.look(&key("ada")).await.unwrap().statuses()[0].remaining(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_credit_whose_caller_leaves_is_kept_too() {
    let inner = failing();
    let store = keeping(&inner, 10);
    let limiter = tokens(&store, Algorithm::Gcra);
    let _permit = reserve(&limiter, "ada", 400).await;
    inner.set(Connection::FailsLater(Fault::Refused));
    let user = key("ada");
    let credit = timeout(Duration::ZERO, limiter.credit(("tokens", &user, 100)));
    assert!(credit.await.is_err(), "the caller leaves first");
    sleep(LOOK).await;
    inner.set(Connection::Works);
    sleep(PAUSE).await;
    assert_eq!(left(&limiter, "ada").await, 700);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_answered_while_a_store_closes_is_unsent() {
    let inner = failing();
    let store = keeping(&inner, 10);
    let limiter = tokens(&store, Algorithm::Gcra);
    settle_later(&inner, &limiter, "ada", 450).await;
    inner.set(Connection::IsSilent);
    let unsent = store.close(PAUSE).await;
    assert_eq!((unsent.corrections, counts(&store)), (1, [0, 0, 0, 0, 1]));
}

/// More than 2^32 units are charged in several calls, and a later one fails.
#[tokio::test]
async fn a_settlement_that_was_charged_in_part_is_not_kept() {
    let inner = failing();
    let asked = Arc::new(AtomicU32::new(0));
    let store = RefusesChecks(inner.clone(), 1..2, Arc::clone(&asked)).fail_closed().keep_corrections(10);
    let bytes = Policy::new("bytes", Quota::per_day(Quota::MAX_UNITS));
    let limiter = Limiter::new([bytes]).store(store.clone());
    let settled = limiter.debit(("bytes", &key("ada"), 10_000_000_000)).await;
    assert_eq!((settled.charged, settled.forgiven), (9_999_999_999, 1));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert_eq!(store.kept_corrections(), CorrectionCounts::default());
}

/// Refuses some of its checks, counted from 0, and executes what else it is asked.
#[derive(Clone)]
struct RefusesChecks(Failing, Range<u32>, Arc<AtomicU32>);

impl Store for RefusesChecks {
    type Error = Fault;
    type Acquire = <Failing as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Fault>, Self::Acquire> {
        if !self.1.contains(&self.2.fetch_add(1, Ordering::Relaxed)) {
            return self.0.acquire(set, times);
        }
        self.0.set(REFUSED);
        let refused = self.0.acquire(set, times);
        self.0.set(Connection::Works);
        refused
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Fault> + use<> {
        self.0.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Fault> + use<> {
        self.0.reset(key, policies)
    }
}

/// Their windows, by the clock of the store, were over long ago.
#[tokio::test(start_paused = true)]
async fn a_charge_is_dropped_when_its_window_is_over() {
    for algorithm in [Algorithm::FIXED_WINDOW, Algorithm::FIXED_WINDOW_ALIGNED] {
        let inner = Failing::new(store(&tollgate_tests::clock()), Connection::Works);
        let store = keeping(&inner, 10);
        let limiter = tokens(&store, algorithm);
        settle_later(&inner, &limiter, "ada", 450).await;
        sleep(PAUSE).await;
        assert_eq!(left(&limiter, "ada").await, 600, "{algorithm:?}");
        assert_eq!(counts(&store), [0, 0, 1, 0, 0], "{algorithm:?}");
    }
}

/// As the docs of the method say.
#[tokio::test(start_paused = true)]
async fn what_a_fallback_granted_is_corrected_there_and_not_kept() {
    let inner = failing();
    let store = inner.clone().timeout(TIMEOUT).fall_back_to(MemoryStore::new(), Share::WHOLE);
    let store = store.keep_corrections(10);
    let limiter = Limiter::new([per_minute("tokens", 1_000)]).store(store.clone());
    inner.set(REFUSED);
    let mut permit = limiter.check(&key("ada"), 400).await.unwrap();
    assert_eq!(permit.charge("tokens").settle(450).await.kept, 0);
    assert_eq!(store.kept_corrections(), CorrectionCounts::default());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_once_all_handles_of_the_store_are_gone() {
    let inner = failing();
    let store = keeping(&inner, 10);
    let limiter = tokens(&store, Algorithm::Gcra);
    let mut permit = reserve(&limiter, "ada", 400).await;
    inner.set(REFUSED);
    permit.charge("tokens").settle(450).await;
    sleep(10 * PAUSE).await;
    drop((store, limiter, permit));
    sleep(PAUSE).await;
    let asked = inner.asked();
    sleep(10 * PAUSE).await;
    assert_eq!(inner.asked(), asked);
}

/// The first task that sends ends when all is sent, and another begins.
#[tokio::test(start_paused = true)]
async fn a_second_outage_is_made_good_as_the_first() {
    let inner = failing();
    let store = keeping(&inner, 10);
    let limiter = tokens(&store, Algorithm::Gcra);
    for outage in 1..=3 {
        assert_eq!(settle_later(&inner, &limiter, "ada", 300).await, kept(300, 100));
        sleep(PAUSE).await;
        assert_eq!(left(&limiter, "ada").await, 1_000 - 300 * outage);
    }
}

/// The runtime of the task that sends stops, and a correction is on its way.
#[test]
fn what_was_on_its_way_when_its_runtime_stopped_is_not_sent_again() {
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let inner = failing();
    // Without a timeout, so that a correction stays on its way.
    let store = inner.clone().fail_closed().keep_corrections(10);
    let limiter = Limiter::new([per_minute("tokens", 1_000)]).store(store.clone());
    let settle = async |name, total| {
        inner.set(Connection::Works);
        let mut permit = limiter.check(&key(name), 400).await.unwrap();
        inner.set(REFUSED);
        assert_eq!(permit.charge("tokens").settle(total).await.kept, total - 400);
    };
    let first = runtime();
    first.block_on(async {
        settle("ada", 450).await;
        let asked = inner.asked();
        inner.set(Connection::IsSilent);
        while inner.asked() == asked {
            sleep(LOOK).await;
        }
    });
    drop(first);
    runtime().block_on(async {
        settle("bob", 410).await;
        inner.set(Connection::Works);
        while store.kept_corrections().waiting > 0 {
            sleep(LOOK).await;
        }
        let counts = store.kept_corrections();
        assert_eq!((counts.sent, counts.unknown), (1, 1));
        for (name, expected) in [("ada", 600), ("bob", 590)] {
            let report = limiter.look(&key(name)).await.unwrap();
            assert_eq!(report.statuses()[0].remaining(), expected, "{name}");
        }
    });
}

#[test]
fn what_was_not_on_its_way_when_its_runtime_stopped_is_sent() {
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let inner = failing();
    let store = inner.clone().fail_closed().keep_corrections(1_000);
    let limiter = Limiter::new([per_minute("tokens", 1_000)]).store(store.clone());
    let debit = async |name: String| limiter.debit(("tokens", &Key::from(name), 100)).await;
    inner.set(REFUSED);
    let first = runtime();
    first.block_on(async {
        for n in 0..500 {
            debit(format!("user-{n}")).await;
        }
        inner.set(Connection::IsSilent);
        let asked = inner.asked();
        while inner.asked() == asked {
            sleep(LOOK).await;
        }
    });
    drop(first);
    runtime().block_on(async {
        inner.set(REFUSED);
        debit("late".to_owned()).await;
        inner.set(Connection::Works);
        while store.kept_corrections().waiting > 0 {
            sleep(LOOK).await;
        }
        let [_, sent, expired, _, unknown] = counts_of(store.kept_corrections());
        assert_eq!((sent + unknown, expired), (501, 0));
        assert!((1..=64).contains(&unknown), "{unknown} were on their way");
    });
}

/// The clock stands still, so that time gives nothing back.
#[tokio::test(start_paused = true)]
async fn random_histories_over_outages_end_as_without_them() {
    for seed in 0..short_or_long(200, 10_000) {
        let mut random = Random::new(seed);
        let algorithm = random.one_of(&[Algorithm::Gcra, Algorithm::FIXED_WINDOW, Algorithm::SLIDING_LOG]);
        let inner = failing();
        let kept = keeping(&inner, 1_000);
        let limiters = [tokens(&kept, algorithm), tokens(&keeping(&failing(), 0), algorithm)];
        let (mut is_out, mut permits) = (false, Vec::new());
        for _ in 0..40 {
            match random.below(5) {
                0 => is_out = !is_out,
                1 | 2 if !is_out => {
                    let (name, units) = (random.one_of(&["ada", "bob"]), 1 + random.below(9));
                    let [first, second] = &limiters;
                    let each = [reserve(first, name, units).await, reserve(second, name, units).await];
                    permits.push((each, units));
                }
                _ if permits.is_empty() => {}
                choice => {
                    let (each, units) =
                        permits.swap_remove(random.small(0, u32::MAX) as usize % permits.len());
                    let total = random.below(3 * units);
                    for mut permit in each {
                        match choice {
                            3 => permit.refund().await,
                            _ => drop(permit.charge("tokens").settle(total).await),
                        }
                    }
                }
            }
            inner.set(if is_out { REFUSED } else { Connection::Works });
            if random.below(4) == 0 {
                sleep(PAUSE).await;
            }
        }
        inner.set(Connection::Works);
        sleep(PAUSE).await;
        for name in ["ada", "bob"] {
            let [first, second] = &limiters;
            assert_eq!(left(first, name).await, left(second, name).await, "seed {seed}, {name}");
        }
        assert_eq!(kept.kept_corrections().refused, 0, "seed {seed}");
    }
}

#[test]
fn a_store_that_keeps_corrections_keeps_the_contract() {
    fn memory(clock: Clock) -> MemoryStore {
        MemoryStore::builder().clock(clock).build()
    }
    keeps_the_contract(|clock| memory(clock).fail_closed().keep_corrections(10));
    keeps_the_contract(|clock| {
        let store: Answering<MemoryStore, _> = memory(clock).fall_back_to(MemoryStore::new(), Share::WHOLE);
        store.keep_corrections(10).boxed()
    });
}
