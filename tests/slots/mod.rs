//! Four servers share twenty slots. Clients leave, handlers panic and time out, one server is
//! killed, one is stopped for longer than its leases, and one is cut off from Redis. All releases
//! are sent twice. Of the handlers that have asked whether their slot is lost, never more than
//! twenty go on.
//!
//! With `TOLLGATE_LONG=1` the first fleet works for 40 seconds.

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

use fleet::{CUT_OFF, Fleet};
use history::{History, Run};
use plan::{LEASE, LIMIT, rate, slots};

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

/// The free slots, and the requests that the rate has counted.
async fn left(fleet: &Fleet) -> (u64, u64) {
    let store = RedisStore::builder(&fleet.redis.url()).connect().await.unwrap();
    let (key, slots, rate) = (Key::global(), slots(), rate());
    let set = [Check::new(&slots, &key, 1), Check::new(&rate, &key, 1)];
    let look = store.acquire(&set, Times::LOOK).wait().await.unwrap();
    (look.each()[0].remaining(), rate.capacity() - look.each()[1].remaining())
}

fn print(what: &str, history: &History, most: u64) {
    let lost = history.runs.iter().filter(|run| run.lost.is_some()).count();
    let (runs, denied, unknown) = (history.runs.len(), history.denied, history.unknown);
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
            stopped = now();
            fleet.processes[STOPPED].signal("-STOP");
            sleep(3 * LEASE).await;
            fleet.processes[STOPPED].signal("-CONT");
            sleep(pause).await;
            let _long_request = fleet.start_long_request(CUT_OFF).await;
            cut_off = now();
            fleet.proxy.set(Way::IsSilent);
            sleep(3 * LEASE).await;
            fleet.proxy.set(Way::IsOpen);
            sleep(pause).await;
        })
        .await;
    // All clients have gone. Their releases are answered, or a lease ends what was not released.
    sleep(LEASE + LEASE / 2).await;
    let (free, counted) = left(&fleet).await;
    assert_eq!(free, LIMIT, "all slots are free within a lease");

    let history = fleet.history();
    let (most, at) = history.most_at_once(0, u64::MAX);
    print("faults", &history, most);
    assert!(most <= LIMIT, "{most} at {at}: {:#?}", around(&history, at));
    assert!(most > LIMIT / 2 && history.denied > 0, "the limit is reached");
    let charged = history.granted..=history.granted + history.unknown;
    assert!(
        charged.contains(&counted),
        "{counted} charged, not {charged:?}: a refused request changed a rate"
    );

    // A holder hears it at the latest a lease after the last renewal that succeeded was sent.
    for (process, since) in [(STOPPED, stopped), (CUT_OFF, cut_off)] {
        let held = |run: &&Run| run.process == process && run.from < since && run.to >= since;
        let late = history.runs.iter().filter(held).filter(|run| run.to > since + micros(LEASE));
        assert_eq!(late.count(), 0, "handlers of process {process} went on for longer than a lease");
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
/// again with its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_forgets_is_known_again_after_a_third_of_a_lease() {
    let mut fleet = Fleet::start("closed").await;
    let mut forgotten = 0;
    fleet
        .work(async |fleet| {
            sleep(3 * LEASE).await;
            forgotten = now();
            fleet.redis.command(&["FLUSHALL"]).unwrap();
            sleep(3 * LEASE).await;
        })
        .await;
    let history = fleet.history();
    let (before, _) = history.most_at_once(0, forgotten);
    let (after, _) = history.most_at_once(forgotten, u64::MAX);
    // A look for slots to renew comes at most a fifteenth of a lease too late on an idle machine.
    let settled = forgotten + micros(LEASE / 3 + LEASE / 3);
    let (later, at) = history.most_at_once(settled, u64::MAX);
    print("forgotten", &history, after);
    assert!(before <= LIMIT && after <= 2 * LIMIT, "{before}, then {after}");
    assert!(later <= LIMIT, "{later} at {at}, {} ms after", (at - forgotten) / 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_a_fallback_adds_its_shares() {
    let mut fleet = Fleet::start("fallback").await;
    fleet
        .work(async |fleet| {
            sleep(2 * LEASE).await;
            fleet.redis.kill();
            sleep(3 * LEASE).await;
        })
        .await;
    let history = fleet.history();
    let (most, at) = history.most_at_once(0, u64::MAX);
    print("fallback", &history, most);
    // Five of each of four servers.
    assert!(most <= 2 * LIMIT, "{most} at {at}");
}
