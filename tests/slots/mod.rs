//! Four servers share twenty slots. Clients leave, handlers panic and time out, one server is
//! killed, one is stopped for longer than its times to live, and one is cut off from Redis. All
//! releases are sent twice. Of the handlers that have asked whether their slot is lost, never more
//! than twenty go on.
//!
//! Redis stalls, and callers do not wait for it. If connections stay open, a slot without a holder
//! is free at once. If they are cut, it is free within a time to live.
//!
//! With `TOLLGATE_LONG=1` the first fleet works for 40 seconds, and Redis stalls for 60.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod fleet;
mod history;
mod plan;
mod turns;

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate_test_servers::short_or_long;

use tokio::time::sleep;
use tollgate::Key;
use tollgate::store::{Check, Store, Times};
use tollgate_redis::RedisStore;
use tollgate_tests::Way;

use crate::stalls::{
    HOUR, claims_are_over, claims_lost, eventually, stall, stall_and_cut, stall_time, wait_by,
};
use fleet::{CUT_OFF, Fleet, SERVERS};
use history::{History, Run};
use plan::{LIMIT, rate, renewed, slots};

/// Short, so that each fault lasts for several.
const TTL: Duration = Duration::from_secs(1);

const STOPPED: usize = 2;
const KILLED: usize = 3;

/// How long a fleet works.
fn work_time() -> Duration {
    Duration::from_secs(short_or_long(9, 40))
}

/// A time as the servers write it down.
#[expect(clippy::disallowed_methods, reason = "it is no clock of a decision")]
fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

/// The free slots of this time to live, and the requests that the rate has counted.
async fn left(fleet: &Fleet, ttl: Duration) -> (u64, u64) {
    let store = RedisStore::builder(&fleet.redis.url()).connect().await.unwrap();
    let (key, slots, rate) = (Key::global(), slots(ttl), rate());
    let set = [Check::new(&slots, &key, 1), Check::new(&rate, &key, 1)];
    let look = store.acquire(&set, Times::LOOK).wait().await.unwrap();
    (look.each()[0].remaining(), rate.capacity() - look.each()[1].remaining())
}

fn print(what: &str, history: &History, most: u64) {
    let lost = history.runs.iter().filter(|run| run.lost.is_some()).count();
    let (runs, denied) = (history.runs.len(), history.denied);
    let unknown: u64 = history.unknown.iter().sum();
    println!(
        "{what}: {runs} requests ran, {denied} were denied, {unknown} are unknown; {lost} lost their slot; at most {most} at once"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_the_limit_go_on_whatever_fails() {
    let mut fleet = Fleet::start("closed").await;
    let pause = work_time() / 9;
    let (mut stopped, mut cut_off) = (0, 0);
    fleet
        .work(async |fleet| {
            sleep(pause).await;
            fleet.processes[KILLED].kill();
            sleep(pause).await;
            fleet.processes[STOPPED].signal("-STOP");
            // A renewal may have been sent until then.
            stopped = now();
            sleep(3 * TTL).await;
            fleet.processes[STOPPED].signal("-CONT");
            sleep(pause).await;
            let _long_request = fleet.start_long_request(CUT_OFF).await;
            fleet.proxy.set(Way::IsSilent);
            cut_off = now();
            sleep(3 * TTL).await;
            fleet.proxy.set(Way::IsOpen);
            sleep(pause).await;
        })
        .await;
    // All clients have gone. Their releases are answered, or a time to live ends what was not
    // released.
    sleep(TTL + TTL / 2).await;
    let (free, counted) = left(&fleet, TTL).await;
    assert_eq!(free, LIMIT, "all slots are free within a time to live");

    let history = fleet.history();
    let (most, at) = history.most_at_once(0, u64::MAX);
    print("faults", &history, most);
    assert!(most <= LIMIT, "{most} at {at}: {:#?}", around(&history, at));
    assert!(most > LIMIT / 2 && history.denied > 0, "the limit is reached");
    let charged = history.granted..=history.granted + history.unknown.iter().sum::<u64>();
    assert!(
        charged.contains(&counted),
        "{counted} charged, not {charged:?}: a refused request changed a rate"
    );

    // A holder hears it at the latest a time to live after the last renewal that succeeded was
    // sent.
    for (process, since) in [(STOPPED, stopped), (CUT_OFF, cut_off)] {
        let held = |run: &&Run| run.process == process && run.from < since && run.to >= since;
        let late = history.runs.iter().filter(held).filter(|run| run.to > since + micros(TTL));
        assert_eq!(late.count(), 0, "handlers of process {process} went on for longer than a time to live");
    }
    let told = |process: usize| {
        history.runs.iter().filter(|run| run.process == process && run.lost.is_some()).count()
    };
    assert!(told(CUT_OFF) > 0, "no handler lost its slot");
}

/// The runs around a time, for people.
fn around(history: &History, at: u64) -> Vec<Run> {
    history.runs.iter().filter(|run| run.from <= at && run.to >= at).copied().collect()
}

/// As after a failover to a replica that had heard of no slot: what runs goes on, and is known
/// again with its next renewal. A request that does not get to it in time has lost its slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_forgets_is_known_again_within_a_time_to_live() {
    let mut fleet = Fleet::start("closed").await;
    let (mut known, mut forgotten) = (0, 0);
    fleet
        .work(async |fleet| {
            sleep(3 * TTL).await;
            known = now();
            fleet.redis.command(&["FLUSHALL"]).unwrap();
            forgotten = now();
            sleep(3 * TTL).await;
        })
        .await;
    let history = fleet.history();
    let (before, _) = history.most_at_once(0, known);
    let (after, _) = history.most_at_once(known, u64::MAX);
    let (later, at) = history.most_at_once(forgotten + micros(TTL), u64::MAX);
    print("forgotten", &history, after);
    assert!(before <= LIMIT && after <= 2 * LIMIT, "{before}, then {after}");
    assert!(later <= LIMIT, "{later} at {at}, {} ms after", (at - forgotten) / 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_a_fallback_adds_its_shares() {
    let mut fleet = Fleet::start("fallback").await;
    fleet
        .work(async |fleet| {
            sleep(2 * TTL).await;
            fleet.redis.kill();
            sleep(3 * TTL).await;
        })
        .await;
    let history = fleet.history();
    let (most, at) = history.most_at_once(0, u64::MAX);
    print("fallback", &history, most);
    // Five of each of four servers.
    assert!(most <= 2 * LIMIT, "{most} at {at}");
}

/// Callers wait for 50 ms, and Redis stalls for longer. The time to live of a slot is an hour, so
/// only a release frees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalls_leave_no_slot_without_a_holder_and_lose_none() {
    let mut fleet = Fleet::with_ttl("hasty", HOUR).await;
    fleet
        .work(async |fleet| {
            let mut long_requests = Vec::new();
            for server in 0..SERVERS {
                long_requests.push(fleet.start_long_request(server).await);
            }
            stall(&[&fleet.redis], stall_time()).await;
        })
        .await;
    let servers = fleet.addresses(&[]);
    claims_are_over(&servers).await;
    eventually("all slots are free", async || left(&fleet, HOUR).await.0 == LIMIT).await;
    assert_eq!(claims_lost(&servers).await, 0);

    let history = fleet.history();
    let (most, at) = history.most_at_once(0, u64::MAX);
    print("stalls", &history, most);
    assert!(most <= LIMIT, "{most} at {at}: {:#?}", around(&history, at));
    assert!(history.denied > 0, "the limit is reached");
    assert!(history.unknown.iter().sum::<u64>() > 0, "no claim was late");
    let (_, counted) = left(&fleet, HOUR).await;
    assert_eq!(counted, history.granted, "a late claim keeps what its set was charged");
    let ttl = micros(renewed().ttl().unwrap());
    let outlive = history.runs.iter().filter(|run| run.to - run.from > ttl);
    assert!(outlive.count() > 0, "no slot was held for longer than its time to live");
    for run in &history.runs {
        let Some(lost) = run.lost else { continue };
        let silence = history.longest_silence(run.process, lost - ttl, lost);
        // A renewal is late by one silence at most, and its answer by another. It is due up to a
        // look before a third of the time to live has passed.
        assert!(2 * silence >= 2 * ttl / 3 - ttl / 15, "lost after {silence} us of silence: {run:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_claims_are_counted_and_their_slots_are_free_within_a_time_to_live() {
    let mut fleet = Fleet::with_ttl("hasty", TTL).await;
    let servers = fleet.addresses(&[KILLED]);
    fleet
        .work(async |fleet| {
            let half = stall_time() / 2;
            stall_and_cut(&[&fleet.redis], half, async || 1).await;
            fleet.redis.pause().unwrap();
            sleep(TTL / 4).await;
            fleet.processes[KILLED].kill();
            fleet.redis.resume().unwrap();
            stall_and_cut(&[&fleet.redis], half, async || claims_lost(&servers).await).await;
        })
        .await;
    claims_are_over(&servers).await;
    wait_by(&fleet.redis, TTL).await;
    let (free, counted) = left(&fleet, TTL).await;
    assert_eq!(free, LIMIT, "all slots are free within a time to live");

    let (history, lost) = (fleet.history(), claims_lost(&servers).await);
    let (most, at) = history.most_at_once(0, u64::MAX);
    print("cuts", &history, most);
    println!("{lost} claims were lost; {} of {counted} grants have no holder", counted - history.granted);
    assert!(most <= LIMIT, "{most} at {at}: {:#?}", around(&history, at));
    // A process that was killed counts nothing any more.
    let lost = lost + history.unknown[KILLED];
    assert!((history.granted..=history.granted + lost).contains(&counted), "{counted} charged, {lost} lost");
}
