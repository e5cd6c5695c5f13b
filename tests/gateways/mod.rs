//! Four gateways stream answers to clients that leave, and charge what each stream produces. One
//! gateway is killed, and the clocks of two are wrong. The journals of all gateways show afterwards
//! whether the quotas held, and whether the totals in Redis are right to the unit.
//!
//! Masters stall, and clients do not wait for them. If connections stay open, a slot without a
//! holder is free at once, and its units are refunded. If they are cut, it is free within a time to
//! live.
//!
//! With `TOLLGATE_LONG=1` the streams take 40 seconds, and a second fleet streams while a master of
//! its Cluster dies. Without it they take five seconds.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod checks;
mod clients;
mod fleet;
mod history;
mod plan;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::sleep;
use tollgate_test_servers::short_or_long;

use crate::stalls::{
    HOUR, claims_are_over, claims_lost, eventually, stall, stall_and_cut, stall_time, wait_by,
};
use clients::KEYS;
use fleet::Fleet;
use history::{Bracket, Stream};
use plan::policies;

/// The number of the gateway that is killed.
const KILLED: usize = 3;

/// The time to live of the slot of a stream.
const TTL: Duration = Duration::from_secs(2);

/// No key exceeds the quota of the policy of this number.
fn quotas_hold(fleet: &Fleet, streams: &[Stream], number: usize) {
    let policy = &policies()[number];
    for key in 0..KEYS {
        let of_key = fleet.of(streams, number, Some(key));
        checks::grants_stay_within_the_quota(policy, &of_key);
        checks::products_stay_within_the_quota(policy, &of_key);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_four_gateways_stay_within_their_quotas() {
    let mut fleet = Fleet::start(short_or_long(5, 40), TTL).await;
    fleet.keep_masters();
    fleet.stream(|fleet| fleet.gateways[KILLED].kill()).await;
    let streams = fleet.corrected(Some(KILLED)).await;
    let totals = fleet.totals().await;

    let mut refunded_late = 0;
    for (n, (policy, total)) in policies().iter().zip(totals).enumerate() {
        let of_policy = fleet.of(&streams, n, None);
        let late = of_policy.iter().filter(|stream| checks::is_refunded_late(policy, stream)).count();
        refunded_late += late;
        let (name, due, figures) = (policy.name(), charged(&of_policy), Figures(&of_policy));
        println!("{name}: {figures}, {late} late refunds, a total of {total} in {due:?}");
        quotas_hold(&fleet, &streams, n);
        of_policy.iter().for_each(|stream| checks::charges_settle_once(stream));
        assert!(due.contains(&total), "{name}: a total of {total}, not {due:?}");
        assert_eq!(of_policy.iter().map(|stream| stream.failures).sum::<usize>(), 0, "{name}");
        assert!(of_policy.iter().any(|stream| stream.denials > 0), "{name}: the quota is ample");
    }
    assert!(refunded_late > 0, "no window ends between a grant and its refund");
}

/// Only streams that were open in the last second of a master may be charged wrongly. It takes a
/// minute, so it runs with `TOLLGATE_LONG=1` only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_only_what_was_not_replicated() {
    if !short_or_long(false, true) {
        return;
    }
    let mut fleet = Fleet::start(40, TTL).await;
    let mut last_second = Bracket { from: 0, to: 0 };
    let kill = |fleet: &mut Fleet| {
        let slot = fleet.cluster.slot_of("gateways:2:{=0}:").unwrap();
        let master = fleet.cluster.owner_of(slot).unwrap();
        let time = master.command(&["TIME"]).unwrap();
        let (seconds, micros) = time.split_once('\n').unwrap();
        let now = seconds.parse::<i64>().unwrap() * 1_000_000 + micros.parse::<i64>().unwrap();
        last_second = Bracket { from: now - 1_000_000, to: now };
        master.kill();
    };
    fleet.stream(kill).await;
    let streams = fleet.corrected(None).await;

    for (n, (policy, total)) in policies().iter().zip(fleet.totals().await).enumerate() {
        let of_policy = fleet.of(&streams, n, None);
        let open = of_policy.iter().filter(|stream| stream.is_live(last_second));
        let open: u64 = open.map(|stream| stream.reserved() + stream.unanswered()).sum();
        let (name, due, figures) = (policy.name(), charged(&of_policy), Figures(&of_policy));
        println!("{name}: {figures}, a total of {total} in {due:?} ± {open}");
        assert!((due.start().saturating_sub(open)..=due.end() + open).contains(&total), "{name}");
    }
}

/// The time to live of a slot is an hour, so only a release frees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalls_leave_no_stream_without_a_holder_and_charge_no_late_claim() {
    let mut fleet = Fleet::start(stall_time().as_secs(), HOUR).await;
    fleet.keep_masters();
    fleet.make_hasty();
    fleet.stream_during(async |fleet| stall(&fleet.cluster.masters().unwrap(), stall_time()).await).await;
    let streams = fleet.corrected(None).await;
    let gateways = fleet.addresses(None);
    claims_are_over(&gateways).await;
    eventually("no slot is taken", async || fleet.in_flight(HOUR).await == 0).await;
    assert_eq!(claims_lost(&gateways).await, 0);
    let mut all_withdrawn = 0;
    for (n, (policy, total)) in policies().iter().zip(fleet.totals().await).enumerate() {
        let of_policy = fleet.of(&streams, n, None);
        let withdrawn: u64 = of_policy.iter().map(|stream| stream.withdrawn()).sum();
        all_withdrawn += withdrawn;
        let (least, most) = charged(&of_policy).into_inner();
        let due = least..=most - withdrawn;
        let (name, figures) = (policy.name(), Figures(&of_policy));
        println!("{name}: {figures}, {withdrawn} units withdrawn, a total of {total} in {due:?}");
        quotas_hold(&fleet, &streams, n);
        of_policy.iter().for_each(|stream| checks::charges_settle_once(stream));
        assert!(due.contains(&total), "{name}: a total of {total}, not {due:?}");
        assert_eq!(of_policy.iter().map(|stream| stream.failures).sum::<usize>(), 0, "{name}");
    }
    assert!(all_withdrawn > 0, "no client left before its answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_lost_claims_are_over_within_a_time_to_live() {
    let mut fleet = Fleet::start(stall_time().as_secs(), TTL).await;
    fleet.keep_masters();
    fleet.make_hasty();
    let gateways = fleet.addresses(Some(KILLED));
    fleet
        .stream_during(async |fleet| {
            let half = stall_time() / 2;
            stall_and_cut(&fleet.cluster.masters().unwrap(), half, async || 1).await;
            for master in fleet.cluster.masters().unwrap() {
                master.pause().unwrap();
            }
            sleep(TTL / 8).await;
            fleet.gateways[KILLED].kill();
            for node in fleet.cluster.nodes() {
                node.resume().unwrap();
            }
            stall_and_cut(&fleet.cluster.masters().unwrap(), half, async || claims_lost(&gateways).await)
                .await;
        })
        .await;
    claims_are_over(&gateways).await;
    wait_by(&fleet.cluster.nodes()[0], TTL).await;
    assert_eq!(fleet.in_flight(TTL).await, 0, "each slot is free within a time to live");
    println!("{} claims were lost", claims_lost(&gateways).await);
    let streams = fleet.streams();
    for n in 0..policies().len() {
        println!("{}: {}", policies()[n].name(), Figures(&fleet.of(&streams, n, None)));
        quotas_hold(&fleet, &streams, n);
    }
}

/// The least and the most that these streams are charged in the end.
fn charged(streams: &[&Stream]) -> RangeInclusive<u64> {
    let [least, most] = [|(least, _)| least, |(_, most)| most]
        .map(|end: fn((u64, u64)) -> u64| streams.iter().map(|stream| end(stream.charged())).sum());
    least..=most
}

/// What happened to some streams, for people.
struct Figures<'a>(&'a [&'a Stream]);

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&Stream) -> usize| -> usize { self.0.iter().map(|stream| of(stream)).sum() };
        let (streams, grants) =
            (sum(|stream| stream.grants().count().min(1)), sum(|stream| stream.grants().count()));
        let ended = |is_drop: bool| {
            self.0.iter().filter(|stream| stream.end.is_some_and(|end| end.is_drop == is_drop)).count()
        };
        let (settled, dropped) = (ended(false), ended(true));
        write!(
            f,
            "{streams} streams ({settled} settled, {dropped} dropped, {} killed), ",
            streams - settled - dropped
        )?;
        write!(f, "{} units, {} extensions, ", sum(|stream| stream.chunks.len()), grants - streams)?;
        write!(f, "{} denials, {} failures", sum(|stream| stream.denials), sum(|stream| stream.failures))
    }
}
