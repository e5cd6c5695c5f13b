//! Keys that are blocked after many denials, on real servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::store::{NeverFails, Store};
use tollgate::time::Clock;
use tollgate::{Algorithm, Key, Limiter, ManualClock, Outcome, Policy, Quota, Reason, StoreExt, Timestamp};
use tollgate_redis::SlidingLogLayout;
use tollgate_test_servers::{Kind, Server};

use crate::redis::denials::{READS, commands};
use crate::redis::{Fresh, eventually, shared};

const BLOCK: Duration = Duration::from_secs(3_600);

/// Two in half a minute, and a block after twenty denials.
fn guesses() -> Policy {
    let quota = Quota::new(2, Duration::from_secs(30));
    Policy::new("guesses", quota).with_algorithm(Algorithm::FIXED_WINDOW).block_after(20, BLOCK)
}

async fn answer<S: Store<Error: NeverFails>>(limiter: &Limiter<S>) -> Option<Reason> {
    limiter.check(&Key::from("ada"), 1).await.err().map(|denial| denial.reason())
}

/// Asks until the key is blocked. Another call starts the block, after the denial.
async fn until_blocked<S: Store<Error: NeverFails>>(limiter: &Limiter<S>) {
    eventually("the key is blocked", async || answer(limiter).await == Some(Reason::Blocked)).await;
}

/// Asks a hundred times for each of 50 callers at once.
async fn flood<S: Store<Error: NeverFails>>(limiter: &Limiter<S>) -> Vec<Option<Reason>> {
    let callers: JoinSet<Vec<Option<Reason>>> = (0..50)
        .map(|_| {
            let limiter = limiter.clone();
            async move {
                let mut answers = Vec::new();
                for _ in 0..100 {
                    answers.push(answer(&limiter).await);
                }
                answers
            }
        })
        .collect();
    callers.join_all().await.concat()
}

#[tokio::test]
async fn neither_a_counted_denial_nor_a_block_that_holds_writes() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let fresh = Fresh::on(&server).await;
        let limiter = Limiter::new([guesses()]).store(fresh.store.clone().fail_closed());
        let writes = || {
            let asked = commands(&server);
            assert!(asked.iter().any(|name| name == "evalsha"), "{asked:?}");
            asked.into_iter().filter(|name| !READS.contains(&name.as_str())).collect::<Vec<_>>()
        };
        assert_eq!([answer(&limiter).await, answer(&limiter).await], [None, None]);
        server.command(&["CONFIG", "RESETSTAT"]).unwrap();
        for _ in 0..19 {
            assert_eq!(answer(&limiter).await, Some(Reason::QuotaExceeded));
        }
        assert_eq!(writes(), [""; 0], "{kind}: denials");
        until_blocked(&limiter).await;
        assert_ne!(writes(), [""; 0], "{kind}: the block starts");
        server.command(&["CONFIG", "RESETSTAT"]).unwrap();
        assert_eq!(flood(&limiter).await, [Some(Reason::Blocked); 5_000]);
        assert_eq!(writes(), [""; 0], "{kind}: the block");
    }
}

#[tokio::test]
async fn with_a_deny_cache_a_blocked_key_costs_a_call_a_second() {
    let (server, clock) = (Server::start(Kind::Valkey9_1).unwrap(), Clock::system());
    let fresh = Fresh::on(&server).await;
    let limiter = Limiter::new([guesses()]).store(fresh.store.clone().fail_closed().deny_cache(1_000));
    until_blocked(&limiter).await;
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    let start = clock.now();
    let since = || Duration::from_micros(clock.now().as_micros() - start.as_micros());
    while since() < Duration::from_secs(3) {
        assert_eq!(flood(&limiter).await, [Some(Reason::Blocked); 5_000]);
    }
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    let calls: u64 = calls.split(',').next().unwrap().parse().unwrap();
    assert!((1..=since().as_secs() + 1).contains(&calls), "{calls} in {:?}", since());
}

#[tokio::test]
async fn a_block_outlives_its_process_and_ends_on_time_or_when_it_is_lifted() {
    for &kind in Kind::EVERY {
        let clock = ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000));
        let fresh = Fresh::with(shared(kind), SlidingLogLayout::List, |builder| builder.clock(&clock)).await;
        let limiter = || Limiter::new([guesses()]).store(fresh.store.clone().fail_closed());
        until_blocked(&limiter()).await;
        // The next process has counted no denial.
        let next = limiter();
        assert_eq!(next.blocked("guesses", &Key::from("ada")).await, Some(BLOCK));
        clock.advance(BLOCK - Duration::from_micros(1));
        assert_eq!(answer(&next).await, Some(Reason::Blocked), "{kind}");
        clock.advance(Duration::from_micros(1));
        assert_eq!(answer(&next).await, None, "{kind}");

        next.block("guesses", &Key::from("ada")).await;
        assert_eq!(answer(&limiter()).await, Some(Reason::Blocked), "{kind}");
        next.unblock("guesses", &Key::from("ada")).await;
        assert_eq!(answer(&limiter()).await, None, "{kind}");
    }
}

/// While an edit is rolled out, and after it.
#[tokio::test]
async fn a_block_of_another_time_is_refused_until_its_own_end() {
    for &kind in Kind::EVERY {
        let clock = ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000));
        let fresh = Fresh::with(shared(kind), SlidingLogLayout::List, |builder| builder.clock(&clock)).await;
        let limiter = |time| {
            let policy = Policy::new("guesses", Quota::per_day(9)).block_after(3, time);
            Limiter::new([policy]).store(fresh.store.clone().fail_closed())
        };
        let (earlier, ada) = (limiter(BLOCK), Key::from("ada"));
        earlier.block("guesses", &ada).await;
        clock.advance(BLOCK / 2);
        for time in [BLOCK / 100, 100 * BLOCK] {
            let later = limiter(time);
            assert_eq!(later.blocked("guesses", &ada).await, Some(BLOCK / 2), "{kind}");
            later.block("guesses", &ada).await;
            assert_eq!(earlier.blocked("guesses", &ada).await, Some(BLOCK / 2), "{kind}");
        }
        clock.advance(BLOCK / 2);
        let later = limiter(100 * BLOCK);
        assert_eq!(later.blocked("guesses", &ada).await, None, "{kind}");
        later.block("guesses", &ada).await;
        assert_eq!(earlier.blocked("guesses", &ada).await, Some(100 * BLOCK), "{kind}");
    }
}

/// Callers of four processes are denied at once, so several of these may start a block.
#[tokio::test]
async fn observers_of_one_process_see_a_block_start() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        let seen = Arc::new(AtomicUsize::new(0));
        let limiter = || {
            let seen = Arc::clone(&seen);
            let limiter = Limiter::new([guesses()]).store(fresh.store.clone().fail_closed());
            limiter.observe(move |decision| {
                seen.fetch_add(usize::from(decision.outcome() == Outcome::BlockStarted), Ordering::SeqCst);
            })
        };
        let (one, two, three, four) = (limiter(), limiter(), limiter(), limiter());
        tokio::join!(until_blocked(&one), until_blocked(&two), until_blocked(&three), until_blocked(&four));
        for limiter in [&one, &two] {
            limiter.block("guesses", &Key::from("ada")).await;
        }
        assert_eq!(seen.load(Ordering::SeqCst), 1, "{kind}");
        one.unblock("guesses", &Key::from("ada")).await;
        two.block("guesses", &Key::from("ada")).await;
        assert_eq!(seen.load(Ordering::SeqCst), 2, "{kind}");
    }
}
