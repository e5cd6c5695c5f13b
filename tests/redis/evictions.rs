//! Slots, blocks and short limits in a server whose memory is full: what each `maxmemory-policy`
//! forgets first.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{Grant, Renewal, Stamp, Verdict, renewals};
use tollgate::{Key, Policy, Quota};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

use crate::redis::try_acquire;
use crate::usage::evictions::store;

const TENANTS: usize = 20;
const SLOTS: u64 = 2;
/// Half of the blocked keys go on asking, and half are silent.
const BLOCKED: usize = 20;
const GUESSERS: usize = 10;
const GUESSES: u64 = 3;

/// What a full memory left.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    /// The most slots that a tenant had at one time.
    slots: u64,
    /// The blocks of keys that go on asking, and of silent ones.
    asking: usize,
    silent: usize,
    /// The most guesses of a key that passed.
    guesses: u64,
}

struct Run {
    store: RedisStore,
    slots: Policy,
    block: Policy,
    guesses: Policy,
    invented: Policy,
    /// The slots of each tenant, as it knows them.
    held: Vec<Vec<Stamp>>,
    passed: [u64; GUESSERS],
}

impl Run {
    async fn new(server: &Server, eviction: &str) -> Run {
        let store = store(server, eviction).await;
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let api = Policy::new("api", Quota::per_hour(1)).block_after(1, minutes(15));
        Run {
            store,
            slots: Policy::in_flight("exports", SLOTS).with_ttl(minutes(1)),
            block: api.numbers().block().unwrap(),
            // Whatever the machine, no guess comes back during the test.
            guesses: Policy::new("guesses", Quota::new(GUESSES, minutes(30))),
            invented: Policy::new("daily", Quota::per_day(3)),
            held: vec![Vec::new(); TENANTS],
            passed: [0; GUESSERS],
        }
    }

    async fn block_all(&self) {
        let start = self.block.numbers().with_debt().unwrap();
        for key in 0..BLOCKED {
            assert!(
                try_acquire(&self.store, &start, &format!("blocked {key}"), 1).await.unwrap().is_granted()
            );
        }
    }

    async fn is_blocked(&self, key: usize) -> bool {
        !try_acquire(&self.store, &self.block, &format!("blocked {key}"), 1).await.unwrap().is_granted()
    }

    /// Every tenant asks for one more slot than it may have, and then renews those that it got.
    /// Returns the most that one had.
    async fn ask_for_slots(&mut self) -> u64 {
        let mut most = 0;
        for (tenant, held) in self.held.iter_mut().enumerate() {
            let name = format!("tenant {tenant}");
            let key = Key::from(&*name);
            for _ in 0..=SLOTS {
                let verdict = try_acquire(&self.store, &self.slots, &name, 1).await;
                let granted = verdict.ok().filter(Verdict::is_granted);
                held.extend(granted.map(|verdict| verdict.each()[0].stamp()));
            }
            most = most.max(held.len() as u64);
            let grant = |stamp: &Stamp| {
                let (policy, key) = (&self.slots, &key);
                Grant { policy, key, units: 1, stamp: *stamp, share: None }
            };
            let grants: Vec<Grant<'_>> = held.iter().map(grant).collect();
            let mut renewals = renewals(&self.store, &grants).await.unwrap().into_iter();
            held.retain(|_| renewals.next() != Some(Renewal::Lost));
        }
        most
    }

    async fn guess(&mut self) {
        for (key, passed) in self.passed.iter_mut().enumerate() {
            for _ in 0..5 {
                let verdict = try_acquire(&self.store, &self.guesses, &format!("guesser {key}"), 1).await;
                *passed += u64::from(verdict.is_ok_and(|verdict| verdict.is_granted()));
            }
        }
    }

    /// A thousand keys that no one asks for again. Returns how many were refused.
    async fn invent(&self, round: usize) -> usize {
        let asks: JoinSet<bool> = (0..1_000)
            .map(|n| {
                let (store, policy) = (self.store.clone(), self.invented.clone());
                async move { try_acquire(&store, &policy, &format!("{round} {n}"), 1).await.is_err() }
            })
            .collect();
        asks.join_all().await.into_iter().filter(|is_refused| *is_refused).count()
    }
}

/// Fills the memory one and a half times, while callers ask in every second. Returns what was left,
/// and how many invented keys were refused.
async fn left(eviction: &str) -> (Left, usize) {
    let server = Server::start(Kind::Installed).unwrap();
    let mut run = Run::new(&server, eviction).await;
    run.block_all().await;
    let (mut slots, mut refused) = (0, 0);
    let mut are_asking = [true; BLOCKED / 2];
    for round in 0..12 {
        slots = slots.max(run.ask_for_slots().await);
        run.guess().await;
        for (key, is_blocked) in are_asking.iter_mut().enumerate() {
            *is_blocked &= run.is_blocked(key).await;
        }
        refused += run.invent(round).await;
        // Redis counts in seconds how long a key was idle.
        sleep(Duration::from_millis(1_100)).await;
    }
    let mut silent = 0;
    for key in BLOCKED / 2..BLOCKED {
        silent += usize::from(run.is_blocked(key).await);
    }
    let asking = are_asking.into_iter().filter(|is_blocked| *is_blocked).count();
    let left = Left { slots, asking, silent, guesses: run.passed.into_iter().max().unwrap() };
    println!("{eviction}: {left:?}, {refused} refused");
    (left, refused)
}

/// The table in the documentation of the crate, under "When memory is full".
#[tokio::test]
async fn slots_blocks_and_short_limits_survive_under_the_documented_policies() {
    let ((lru, _), (noeviction, refused), (ttl, _)) =
        tokio::join!(left("volatile-lru"), left("noeviction"), left("volatile-ttl"));
    let all = Left { slots: SLOTS, asking: BLOCKED / 2, silent: BLOCKED / 2, guesses: GUESSES };
    assert_eq!(noeviction, all);
    assert!(refused > 0, "the memory was not full");
    assert!(lru.silent < BLOCKED / 2, "silent keys go first: the documentation is outdated, {lru:?}");
    assert_eq!(Left { silent: all.silent, ..lru }, all, "callers that ask lose nothing");
    assert!(
        ttl.slots > SLOTS && ttl.asking < BLOCKED / 2 && ttl.guesses > GUESSES,
        "volatile-ttl evicts these first: the documentation is outdated, {ttl:?}"
    );
}
