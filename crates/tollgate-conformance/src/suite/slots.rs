//! Cases of requests in flight.

use std::collections::HashSet;
use std::time::Duration;

use tollgate_core::{Check, Grant, Key, Policy, Quota, Renewal, Stamp, Times, Wait};

use super::case::{Case, SECOND, micros};
use crate::oracle::SlotOracle;
use crate::random::Random;

const LEASE: u64 = 15 * SECOND;

fn slots(limit: u64) -> Policy {
    Policy::in_flight("slots", limit).with_lease(Duration::from_micros(LEASE))
}

/// A slot of this grant.
fn slot<'a>(policy: &'a Policy, key: &'a Key, stamp: Stamp) -> Grant<'a> {
    Grant { policy, key, units: 1, stamp, share: None }
}

/// Whether the store ends slots with their lease, as the first grant says.
async fn is_leased(case: &Case) -> bool {
    let (policy, key) = (slots(1), Key::from("the first"));
    let verdict = case.take(&policy, &key, 1).await;
    case.same("granted", verdict.times(), 1);
    let ends_after = verdict.each()[0].ends_after();
    case.refund(&policy, &key, 1, verdict.each()[0].stamp()).await;
    case.same("the lease", ends_after.unwrap_or(Duration::from_micros(LEASE)), Duration::from_micros(LEASE));
    ends_after.is_some()
}

pub(super) async fn no_more_than_the_limit_run_at_once(case: &Case) {
    let (policy, key) = (slots(3), Key::from("caller"));
    let mut stamps = Vec::new();
    for left in [2, 1, 0] {
        let verdict = case.take(&policy, &key, 1).await;
        case.same("granted", verdict.times(), 1);
        case.same("remaining", verdict.each()[0].remaining(), left);
        stamps.push(verdict.each()[0].stamp());
    }
    case.same("stamps that differ", stamps.iter().collect::<HashSet<_>>().len(), 3);
    let denied = case.take(&policy, &key, 1).await;
    case.same("granted beyond the limit", denied.times(), 0);
    match denied.wait() {
        Wait::For(wait) if (1..=LEASE).contains(&micros(wait)) => {}
        wait => case.fail(&format!("a denial waits {wait:?}, not a lease at most")),
    }
    case.same("a cost of 0", case.take(&policy, &key, 0).await.times(), 1);
    case.same("a cost of 2", case.take(&policy, &key, 2).await.wait(), Wait::Never);
    case.left("after denials", &policy, &key, 0).await;
    case.refund(&policy, &key, 1, stamps[1]).await;
    case.refund(&policy, &key, 1, stamps[0]).await;
    case.same("a cost of 2, with room", case.take(&policy, &key, 2).await.times(), 0);
    case.must_take(&policy, &key, 1).await;
    case.left("after a release", &policy, &key, 1).await;
    case.must_take(&policy, &key, 1).await;
    case.left("of another key", &policy, &Key::from("other"), 3).await;
}

pub(super) async fn a_second_release_frees_nothing(case: &Case) {
    let (policy, key) = (slots(2), Key::from("caller"));
    let first = case.must_take(&policy, &key, 1).await;
    case.must_take(&policy, &key, 1).await;
    for _ in 0..3 {
        case.refund(&policy, &key, 1, first).await;
        case.left("after a release", &policy, &key, 1).await;
    }
    case.must_take(&policy, &key, 1).await;
    case.refund(&policy, &key, 1, first).await;
    case.left("after an old release", &policy, &key, 0).await;
    case.refund(&policy, &Key::from("other"), 1, first).await;
    case.left("of another key", &policy, &Key::from("other"), 2).await;
}

pub(super) async fn a_grant_of_several_is_released_in_parts(case: &Case) {
    let (policy, key) = (slots(5), Key::from("caller"));
    let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(9)).await;
    case.same("granted", verdict.times(), 5);
    let stamp = verdict.each()[0].stamp();
    case.refund(&policy, &key, 2, stamp).await;
    case.refund(&policy, &key, 2, stamp).await;
    case.left("after two", &policy, &key, 2).await;
    let rest = stamp.after_refund(&policy, 2);
    case.refund(&policy, &key, 1, rest).await;
    case.left("after three", &policy, &key, 3).await;
    case.refund(&policy, &key, 3, rest).await;
    case.left("after all", &policy, &key, 5).await;
}

pub(super) async fn a_refused_set_takes_no_slot_and_charges_no_rate(case: &Case) {
    let (policy, key) = (slots(1), Key::from("caller"));
    let rate = Policy::new("rate", Quota::per_day(2));
    let set = [Check::new(&rate, &key, 1), Check::new(&policy, &key, 1)];
    let granted = case.acquire(&set, Times::ONCE).await;
    case.same("granted", granted.times(), 1);
    for _ in 0..3 {
        let denied = case.acquire(&set, Times::ONCE).await;
        case.same("granted without a slot", denied.times(), 0);
        case.same("the rate has room", denied.each()[0].wait(), Wait::None);
    }
    case.left("after refusals for want of a slot", &rate, &key, 1).await;
    case.refund(&policy, &key, 1, granted.each()[1].stamp()).await;
    let again = case.acquire(&set, Times::ONCE).await;
    case.same("granted again", again.times(), 1);
    case.refund(&policy, &key, 1, again.each()[1].stamp()).await;
    case.same("granted beyond the rate", case.acquire(&set, Times::ONCE).await.times(), 0);
    case.left("after a refusal by the rate", &policy, &key, 1).await;
}

pub(super) async fn a_slot_is_held_for_a_lease_or_until_it_is_released(case: &Case) {
    let (policy, key) = (slots(1), Key::from("caller"));
    let leased = is_leased(case).await;
    let stamp = case.must_take(&policy, &key, 1).await;
    for _ in 0..5 {
        case.advance(LEASE - 1);
        case.left("before the lease ends", &policy, &key, 0).await;
        let renewals = case.renew(&[slot(&policy, &key, stamp)]).await;
        case.same("renewals", renewals, vec![Renewal::Held]);
    }
    case.advance(LEASE);
    case.left("a lease after the last renewal", &policy, &key, leased.into()).await;
    if !leased {
        return;
    }
    let second = case.must_take(&policy, &key, 1).await;
    case.refund(&policy, &key, 1, stamp).await;
    case.left("after a release that came too late", &policy, &key, 0).await;
    case.same("a lost slot", case.renew(&[slot(&policy, &key, stamp)]).await, vec![Renewal::Lost]);
    case.refund(&policy, &key, 1, second).await;
    let both = case.renew(&[slot(&policy, &key, stamp), slot(&policy, &key, second)]).await;
    case.same(
        "a slot that is taken again, and one for which no room is left",
        both,
        vec![Renewal::Held, Renewal::Lost],
    );
}

pub(super) async fn a_changed_limit_ends_no_slot(case: &Case) {
    let key = Key::from("caller");
    let mut stamps = Vec::new();
    for _ in 0..4 {
        stamps.push(case.must_take(&slots(4), &key, 1).await);
    }
    case.same("granted by less", case.take(&slots(2), &key, 1).await.times(), 0);
    case.left("by more", &slots(6), &key, 2).await;
    for stamp in &stamps[..2] {
        case.refund(&slots(2), &key, 1, *stamp).await;
        case.same("granted while too many are held", case.take(&slots(2), &key, 1).await.times(), 0);
    }
    case.refund(&slots(2), &key, 1, stamps[2]).await;
    case.must_take(&slots(2), &key, 1).await;
    case.reset(&key, &[&slots(2)]).await;
    case.left("after a reset", &slots(4), &key, 4).await;
}

pub(super) async fn policies_of_another_name_or_lease_share_no_slots(case: &Case) {
    let key = Key::from("caller");
    case.must_take(&slots(1), &key, 1).await;
    let others = [Policy::in_flight("others", 1), slots(1).with_lease(Duration::from_secs(3))];
    for other in &others {
        case.must_take(other, &key, 1).await;
    }
}

/// Claims of several at once, releases, renewals, leases that end, and changes of the limit.
pub(super) async fn random_requests_match_the_oracle(case: &Case) {
    let leased = is_leased(case).await;
    for seed in 0..40_u32 {
        let (mut random, key) = (Random::new(seed.into()), Key::from(seed));
        let mut policy = slots(1 + random.below(6));
        let mut oracle = SlotOracle::new(&policy, leased);
        let (mut held, mut released): (Vec<Stamp>, Vec<Stamp>) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            let now = case.time.now();
            let left = oracle.left(&policy, now);
            match random.below(8) {
                0..=2 => {
                    let most = random.small(1, 3);
                    let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(most)).await;
                    case.same("granted", u64::from(verdict.times()), left.min(most.into()));
                    if let (0, Some(end)) = (verdict.times(), oracle.first_end(&policy, now)) {
                        case.same("wait", verdict.wait(), Wait::For(Duration::from_micros(end)));
                    }
                    for turn in 0..verdict.times() {
                        let stamp = verdict.each()[0].stamp().after_refund(&policy, turn.into());
                        oracle.claim(stamp, now);
                        held.push(stamp);
                    }
                }
                3 if !held.is_empty() => {
                    let at = usize::try_from(random.below(held.len() as u64)).unwrap_or(0);
                    let stamp = held.swap_remove(at);
                    oracle.release(stamp);
                    case.refund(&policy, &key, 1, stamp).await;
                    released.push(stamp);
                }
                4 if !released.is_empty() => {
                    let again = random.one_of(&released);
                    case.refund(&policy, &key, 1, again).await;
                }
                5 => {
                    let grants: Vec<Grant<'_>> =
                        held.iter().map(|stamp| slot(&policy, &key, *stamp)).collect();
                    let due: Vec<Renewal> =
                        held.iter().map(|stamp| oracle.renew(&policy, *stamp, now)).collect();
                    case.same("renewals", case.renew(&grants).await, due.clone());
                    // A holder that has lost its slot ends.
                    let mut due = due.into_iter();
                    held.retain(|_| due.next() == Some(Renewal::Held));
                }
                6 => case.advance(random.below(LEASE)),
                _ => policy = slots(1 + random.below(6)),
            }
            let left = oracle.left(&policy, case.time.now());
            case.left(&format!("history {seed}"), &policy, &key, left).await;
        }
    }
}
