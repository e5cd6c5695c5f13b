//! Jobs in Redis and in memory: the same answers as an oracle, one slot for each id, and names and
//! lives of their keys.

use std::time::Duration;

use redis::cmd;
use tokio::task::JoinSet;
use tollgate::jobs::{JobHolder, JobId, JobPolicy, JobStore, JobTake, Jobs, MemoryJobs};
use tollgate::store::{ErrorKind, StoreError};
use tollgate::{Key, Timestamp};
use tollgate_conformance::random::Random;
use tollgate_redis::{RedisStore, RedisStoreBuilder};
use tollgate_test_servers::{Cluster, Kind, Server, short_or_long};
use tollgate_tests::clock;

use crate::redis::cluster::url;
use crate::redis::{Fresh, builder, connect_to, prefix, shared};

const MINUTE: Duration = Duration::from_secs(60);

fn id(text: &str) -> JobId<'_> {
    JobId::try_new(text).unwrap()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

fn is_held(take: &JobTake) -> bool {
    matches!(take, JobTake::Held { .. })
}

/// What a key's jobs must be: a list of all takes, the latest of each id.
#[derive(Default)]
struct Oracle {
    takes: Vec<Take>,
    latest: u64,
}

struct Take {
    id: String,
    attempt: u64,
    taken: u64,
    end: u64,
    lingers: bool,
}

impl Oracle {
    fn take(&mut self, policy: &JobPolicy, now: u64, id: &str, time: Duration) -> JobTake {
        // What a take finds over stays over, also if the clock steps back.
        self.takes.retain(|take| take.end > now);
        let used = self.takes.len() as u64;
        let counts = self.takes.iter().any(|take| take.id == id);
        if !counts && used >= policy.limit() {
            for take in self.takes.iter_mut().filter(|take| take.taken > now) {
                (take.end, take.taken) = (take.end.min(now + micros(policy.longest())), now);
            }
            // The time after which fewer than allowed count.
            let counting = |at: u64| self.takes.iter().filter(|take| take.end > at).count() as u64;
            let ends = self.takes.iter().map(|take| take.end);
            let first = ends.filter(|end| *end > now && counting(*end) < policy.limit()).min().unwrap();
            return JobTake::Full { retry_after: Duration::from_micros(first - now) };
        }
        let is_new = !self.takes.iter().any(|take| take.id == id && !take.lingers);
        self.takes.retain(|take| take.id != id);
        self.latest = now.max(self.latest + 1);
        let end = now + micros(policy.held_for(time));
        let (id, attempt) = (id.to_owned(), self.latest);
        self.takes.push(Take { id, attempt, taken: now, end, lingers: false });
        JobTake::Held { attempt, until: Timestamp::from_micros(end), is_new }
    }

    fn renew(&mut self, policy: &JobPolicy, now: u64, id: &str, attempt: u64, time: Duration) -> Option<u64> {
        let is_meant = |take: &&mut Take| take.id == id && take.attempt == attempt;
        let take = self.takes.iter_mut().find(is_meant).filter(|take| take.end > now && !take.lingers)?;
        let end = (now + micros(policy.held_for(time))).min(take.taken + micros(policy.longest()));
        take.end = if end > now { end } else { return None };
        Some(end)
    }

    fn release(&mut self, policy: &JobPolicy, now: u64, id: &str, attempt: Option<u64>) -> bool {
        let is_meant = |take: &&mut Take| {
            take.id == id
                && take.end > now
                && !take.lingers
                && attempt.is_none_or(|wanted| wanted == take.attempt)
        };
        let Some(take) = self.takes.iter_mut().find(is_meant) else { return false };
        let [longest, linger] = [policy.longest(), policy.lingers_for()].map(micros);
        (take.end, take.lingers) = ((take.taken + longest).min(now + linger), true);
        self.takes.retain(|take| take.id != id || take.end > now);
        true
    }

    fn holders(&self, now: u64) -> Vec<JobHolder> {
        let mut counting: Vec<&Take> = self.takes.iter().filter(|take| take.end > now).collect();
        counting.sort_by_key(|take| (take.end, &take.id));
        let holder = |take: &Take| {
            let [age, rest] = [now.saturating_sub(take.taken), take.end - now].map(Duration::from_micros);
            JobHolder::new(take.id.clone(), take.attempt, age, rest, take.lingers)
        };
        counting.into_iter().map(holder).collect()
    }
}

fn random_policy(next: &mut impl FnMut(u64) -> u64) -> JobPolicy {
    let [longest, linger] = [2 + next(10), next(2) * next(20)].map(Duration::from_secs);
    JobPolicy::new("exports", 1 + next(4), longest).linger(linger)
}

/// Plays random questions, also while the clock steps back and the policy is edited, and compares
/// all answers.
async fn equals_the_oracle<S>(seed: u64, make: impl AsyncFn(tollgate::ManualClock) -> S)
where
    S: JobStore,
{
    for history in 0..short_or_long(20, 400) {
        let mut random = Random::new(seed + history);
        let time = clock();
        let store = make(time.clone()).await;
        let mut next = |below: u64| random.below(below);
        let mut policy = random_policy(&mut next);
        let (mut oracle, mut attempts, key) = (Oracle::default(), vec![0], Key::from("ada"));
        for step in 0..60 {
            let now = time.now().as_micros();
            let name = format!("job-{}", next(6));
            let context = format!("seed {}, step {step}", seed + history);
            let held = Duration::from_millis(next(12_000));
            let late = usize::try_from(next(4)).unwrap();
            let of = attempts.iter().rev().nth(late).copied().unwrap_or_default();
            match next(12) {
                0..5 => {
                    let take = store.take_job(&policy, &key, id(&name), held).await.unwrap();
                    assert_eq!(take, oracle.take(&policy, now, &name, held), "{context}");
                    if let JobTake::Held { attempt, .. } = take {
                        attempts.push(attempt);
                    }
                }
                5..8 => {
                    let attempt = (next(2) == 0).then_some(of);
                    let released = store.release_job(&policy, &key, id(&name), attempt).await.unwrap();
                    assert_eq!(released, oracle.release(&policy, now, &name, attempt), "{context}");
                }
                8..10 => {
                    let end = store.renew_job(&policy, &key, id(&name), of, held).await.unwrap();
                    let due = oracle.renew(&policy, now, &name, of, held).map(Timestamp::from_micros);
                    assert_eq!(end, due, "{context}");
                }
                _ => {
                    let holders = store.job_holders(&policy, &key).await.unwrap();
                    assert_eq!(holders, oracle.holders(now), "{context}");
                }
            }
            match next(20) {
                0 => time.set(Timestamp::from_micros(now - next(20_000_000))),
                1 => {}
                2 => policy = random_policy(&mut next),
                _ => time.advance(Duration::from_micros(next(3_000_000))),
            }
        }
    }
}

#[tokio::test]
async fn jobs_in_memory_equal_the_oracle() {
    for seed in 0..10 {
        equals_the_oracle(seed * 1_000, async |time| MemoryJobs::with_clock(&time)).await;
    }
}

async fn equals_the_oracle_by(builder: impl Fn() -> RedisStoreBuilder) {
    let make = async |time| builder().prefix(prefix()).clock(&time).connect().await.unwrap();
    equals_the_oracle(1, make).await;
}

#[tokio::test]
async fn jobs_on_each_server_equal_the_oracle() {
    for &kind in Kind::EVERY {
        equals_the_oracle_by(|| builder(&shared(kind).url())).await;
    }
}

#[tokio::test]
async fn jobs_in_a_cluster_equal_the_oracle() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    equals_the_oracle_by(|| builder(&url(&cluster))).await;
}

/// A master that was promoted has a clock of its own, and it may be far behind.
#[tokio::test]
async fn a_clock_that_stepped_back_holds_no_slot_longer_than_the_longest_time() {
    let time = clock();
    let redis = builder(&shared(Kind::Redis8_2).url()).prefix(prefix()).clock(&time).connect().await.unwrap();
    let policy = JobPolicy::new("exports", 300, MINUTE);
    steps_back(Jobs::new(policy.clone(), redis), &time).await;
    steps_back(Jobs::new(policy, MemoryJobs::with_clock(&time)), &time).await;
}

async fn steps_back<S: JobStore>(jobs: Jobs<S>, time: &tollgate::ManualClock) {
    let (key, before) = (Key::from("ada"), time.now());
    time.advance(100 * MINUTE);
    for n in 0..300 {
        assert!(is_held(&jobs.take(&key, id(&n.to_string()), MINUTE).await.unwrap()));
    }
    let latest = jobs.holders(&key).await.unwrap().iter().map(|holder| holder.attempt).max().unwrap();
    time.set(before);
    let full = JobTake::Full { retry_after: MINUTE };
    assert_eq!(jobs.take(&key, id("late"), MINUTE).await.unwrap(), full);
    time.advance(MINUTE);
    assert!(jobs.holders(&key).await.unwrap().is_empty());
    let JobTake::Held { attempt, .. } = jobs.take(&key, id("late"), MINUTE).await.unwrap() else { panic!() };
    assert!(attempt > latest, "attempts rise although the clock stepped back");
}

#[tokio::test]
async fn of_many_takes_at_once_as_many_as_allowed_are_held() {
    let fresh = Fresh::on(shared(Kind::Redis8_2)).await;
    let policy = JobPolicy::new("exports", 5, MINUTE);
    let processes = [
        Jobs::new(policy.clone(), fresh.store.clone()),
        Jobs::new(policy, fresh.again(&shared(Kind::Redis8_2).url()).await),
    ];
    let key = Key::from("ada");
    let take = |n: usize| {
        let (jobs, key) = (processes[n % 2].clone(), key.clone());
        async move { jobs.take(&key, id(&n.to_string()), MINUTE).await.unwrap() }
    };
    let takes = (0..100).map(take).collect::<JoinSet<_>>().join_all().await;
    assert_eq!(takes.iter().filter(|take| is_held(take)).count(), 5);
    let full = |take: &JobTake| matches!(take, JobTake::Full { retry_after } if *retry_after <= MINUTE);
    assert!(takes.iter().all(|take| is_held(take) || full(take)));

    // The other process releases what the first took.
    let holders = processes[0].holders(&key).await.unwrap();
    assert_eq!(holders.len(), 5);
    for (n, holder) in holders.iter().enumerate() {
        assert!(processes[n % 2].release_attempt(&key, id(&holder.id), holder.attempt).await.unwrap());
    }
    assert!(processes[1].holders(&key).await.unwrap().is_empty());
    assert!(is_held(&take(1).await));
}

#[tokio::test]
async fn ids_are_stored_as_they_are_and_nothing_lives_longer_than_the_last_job() {
    let server = shared(Kind::Redis8_2);
    let fresh = Fresh::on(server).await;
    let jobs = Jobs::new(JobPolicy::new("exports", 2, 10 * MINUTE), fresh.store.clone());
    let key = Key::from("ada");
    let names = ["with space : { } \n", &"ü".repeat(64)];
    for (name, time) in names.into_iter().zip([MINUTE, 5 * MINUTE]) {
        assert!(is_held(&jobs.take(&key, id(name), time).await.unwrap()));
    }
    let ids: Vec<String> = jobs.holders(&key).await.unwrap().into_iter().map(|holder| holder.id).collect();
    assert_eq!(ids, names);

    let mut redis = connect_to(&server.url()).unwrap();
    let [ends, attempts] =
        ["jobs", "attempts"].map(|form| format!("{}:2:{{=ada}}:exports~{form}", fresh.prefix));
    let members: Vec<String> = cmd("ZRANGE").arg(&ends).arg(0).arg(-1).query(&mut redis).unwrap();
    assert_eq!(members, names);
    for name in [&ends, &attempts] {
        let life: u64 = cmd("PTTL").arg(name).query(&mut redis).unwrap();
        assert!((240_000..=300_001).contains(&life), "{name} lives for {life} ms");
    }
    // States of other kinds are listed and reset without them.
    let stored = fresh.store.stored_policies(&key).await.unwrap();
    assert!(stored.policies.is_empty() && stored.others.is_empty());
    for name in names {
        assert!(jobs.release(&key, id(name)).await.unwrap());
    }
    let left: bool = cmd("EXISTS").arg(&ends).query(&mut redis).unwrap();
    assert!(!left);
    // Without a job, the latest attempt is kept only until later ones are greater.
    let life: i64 = cmd("PTTL").arg(&attempts).query(&mut redis).unwrap();
    assert!(life <= 2, "{life} ms");
}

/// A first write that frees no memory would let all others pass.
#[tokio::test]
async fn a_server_whose_memory_is_full_takes_no_job_of_a_new_key() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = RedisStore::builder(&server.url()).connect().await.unwrap();
    let jobs = Jobs::new(JobPolicy::new("exports", 2, MINUTE), store);
    assert!(is_held(&jobs.take(&Key::from("ada"), id("a"), MINUTE).await.unwrap()));
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    for name in ["ada", "bob"] {
        assert!(jobs.take(&Key::from(name), id("b"), MINUTE).await.is_err(), "{name}");
    }
    assert!(jobs.release(&Key::from("ada"), id("a")).await.unwrap());
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert!(jobs.holders(&Key::from("bob")).await.unwrap().is_empty());
}

/// A server that evicts one of the two keys of a job does not let the other grow or lose it.
#[tokio::test]
async fn a_key_that_was_evicted_leaves_the_other_of_use() {
    let server = shared(Kind::Redis8_2);
    let fresh = Fresh::on(server).await;
    let jobs = Jobs::new(JobPolicy::new("exports", 2, MINUTE), fresh.store.clone());
    let key = Key::from("ada");
    let mut redis = connect_to(&server.url()).unwrap();
    let [ends, attempts] =
        ["jobs", "attempts"].map(|form| format!("{}:2:{{=ada}}:exports~{form}", fresh.prefix));
    for n in 0..10 {
        assert!(is_held(&jobs.take(&key, id(&n.to_string()), MINUTE).await.unwrap()));
        let _: () = cmd("DEL").arg(&ends).query(&mut redis).unwrap();
    }
    assert!(is_held(&jobs.take(&key, id("a"), MINUTE).await.unwrap()));
    let fields: u64 = cmd("HLEN").arg(&attempts).query(&mut redis).unwrap();
    assert_eq!(fields, 2, "the latest attempt, and that of the job that counts");

    let _: () = cmd("DEL").arg(&attempts).query(&mut redis).unwrap();
    let holders = jobs.holders(&key).await.unwrap();
    assert_eq!((holders.len(), holders[0].age), (1, Duration::ZERO));
    assert!(jobs.release(&key, id("a")).await.unwrap());
    assert!(jobs.holders(&key).await.unwrap().is_empty());
}

/// Otherwise a worker would go on, and so would its successor.
#[tokio::test]
async fn a_renewal_beyond_a_longest_time_that_was_shortened_holds_nothing() {
    let time = clock();
    let redis = builder(&shared(Kind::Redis8_2).url()).prefix(prefix()).clock(&time).connect().await.unwrap();
    async fn shortens<S: JobStore>(store: S, time: &tollgate::ManualClock) {
        let key = Key::from("ada");
        let of = |longest| Jobs::new(JobPolicy::new("exports", 1, longest), store.clone());
        let take = of(360 * MINUTE).take(&key, id("a"), 360 * MINUTE).await.unwrap();
        let JobTake::Held { attempt, .. } = take else { panic!("{take:?}") };
        time.advance(120 * MINUTE);
        let jobs = of(60 * MINUTE);
        assert_eq!(jobs.renew(&key, id("a"), attempt, MINUTE).await.unwrap(), None);
        assert!(!is_held(&jobs.take(&key, id("b"), MINUTE).await.unwrap()), "it is held as it was taken");
    }
    shortens(redis, &time).await;
    shortens(MemoryJobs::with_clock(&time), &time).await;
}

/// The answer of a take may be lost. It is not sent again, and the id still has one slot.
#[tokio::test]
async fn a_server_that_is_gone_is_an_error_and_a_repeated_take_has_one_slot() {
    let server = Server::start(Kind::Installed).unwrap();
    let store = RedisStore::builder(&server.url()).connect().await.unwrap();
    let jobs = Jobs::new(JobPolicy::new("exports", 1, MINUTE), store);
    let key = Key::from("ada");
    for _ in 0..3 {
        assert!(is_held(&jobs.take(&key, id("a"), MINUTE).await.unwrap()));
    }
    assert!(!is_held(&jobs.take(&key, id("b"), MINUTE).await.unwrap()));
    drop(server);
    let error = jobs.take(&key, id("a"), MINUTE).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
}
