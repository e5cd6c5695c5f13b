//! Cases of requests in flight.

use std::collections::HashSet;
use std::time::Duration;

use tollgate_core::{Check, Grant, Key, Policy, Quota, Stamp, Times, Verdict, Wait};

use super::case::{Case, SECOND, micros};
use super::concurrency::{CALLERS, EACH, all_refunded, ask};

pub(super) const TTL: u64 = 15 * SECOND;

/// A policy whose slots are held for [`TTL`].
pub(super) fn slots(limit: u64) -> Policy {
    Policy::in_flight("slots", limit).with_ttl(Duration::from_micros(TTL))
}

/// A class that leaves some of 5 slots to others.
pub(super) fn class(case: &Case, limit: u64) -> Policy {
    slots(5).leaving(5 - limit).unwrap_or_else(|error| case.fail(&error.to_string()))
}

/// The slot with this stamp.
pub(super) fn slot<'a>(policy: &'a Policy, key: &'a Key, stamp: Stamp) -> Grant<'a> {
    Grant { policy, key, units: 1, stamp, share: None }
}

/// Whether the store ends slots with their time to live, as the first grant says.
pub(super) async fn has_ttl(case: &Case) -> bool {
    let (policy, key) = (slots(1), Key::from("the first"));
    let verdict = case.take(&policy, &key, 1).await;
    case.same("granted", verdict.times(), 1);
    let ends_after = verdict.each()[0].ends_after();
    case.refund(&policy, &key, 1, verdict.each()[0].stamp()).await;
    case.same(
        "the time to live",
        ends_after.unwrap_or(Duration::from_micros(TTL)),
        Duration::from_micros(TTL),
    );
    ends_after.is_some()
}

/// Fails unless the wait of a denial is `due`, or a time to live at most if no time to live ends.
pub(super) fn waits_until(case: &Case, wait: Duration, due: Option<u64>) {
    match due {
        Some(due) => case.same("the wait", micros(wait), due),
        None => case.same("a wait of a time to live at most", (1..=TTL).contains(&micros(wait)), true),
    }
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
    waits_until(case, case.denied(&policy, &key, 1).await, None);
    case.same("a cost of 0", case.take(&policy, &key, 0).await.times(), 1);
    case.same("a cost of 2", case.take(&policy, &key, 2).await.wait(), Wait::Never);
    case.left("after denials", &policy, &key, 0).await;
    case.refund(&policy, &key, 1, stamps[1]).await;
    case.refund(&policy, &key, 1, stamps[0]).await;
    case.same("a cost of 2, with room", case.take(&policy, &key, 2).await.times(), 0);
    let twice = [Check::new(&policy, &key, 1); 2];
    case.same("two slots for one request", case.acquire(&twice, Times::ONCE).await.wait(), Wait::Never);
    case.must_take(&policy, &key, 1).await;
    case.left("after a release", &policy, &key, 1).await;
    case.must_take(&policy, &key, 1).await;
    case.left("of another key", &policy, &Key::from("other"), 3).await;
}

pub(super) async fn a_denial_of_several_waits_unless_they_exceed_the_limit(case: &Case) {
    let (policy, key) = (slots(3), Key::from("caller"));
    let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(2)).await;
    case.same("granted", verdict.times(), 2);
    for least in [2, 3] {
        let denied = case.acquire(&[Check::new(&policy, &key, 1)], Times::between(least, 5)).await;
        case.same("granted of several, with one left", denied.times(), 0);
        match denied.wait() {
            Wait::For(wait) => waits_until(case, wait, None),
            other => case.fail(&format!("a denial of {least} has the wait {other:?}")),
        }
    }
    let denied = case.acquire(&[Check::new(&policy, &key, 1)], Times::between(4, 5)).await;
    case.same("the wait for more than the limit", denied.wait(), Wait::Never);
    case.refund(&policy, &key, 2, stamp_of(&verdict)).await;
    let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::between(2, 5)).await;
    case.same("granted of several after a release", verdict.times(), 3);
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

/// A store may forget a key without slots, and one is claimed again in the same microsecond.
pub(super) async fn a_release_frees_no_slot_that_was_claimed_later(case: &Case) {
    let (policy, key) = (slots(1), Key::from("caller"));
    let mut earlier: Vec<Stamp> = Vec::new();
    for turn in 0..6 {
        let stamp = case.must_take(&policy, &key, 1).await;
        case.same("an identity that was used before", earlier.contains(&stamp), false);
        for old in &earlier {
            case.refund(&policy, &key, 1, *old).await;
        }
        case.left("after old releases", &policy, &key, 0).await;
        case.refund(&policy, &key, 1, stamp).await;
        earlier.push(stamp);
        case.advance(turn % 2);
    }
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

pub(super) async fn a_set_takes_as_many_slots_as_the_scarcest_policy_has(case: &Case) {
    let (user, tenant, key) = (slots(5), Policy::in_flight("tenant", 3), Key::from("caller"));
    let rate = Policy::new("rate", Quota::per_day(9));
    let set = [&user, &rate, &tenant].map(|policy| Check::new(policy, &key, 1));
    let granted = case.acquire(&set, Times::up_to(4)).await;
    case.same("granted", granted.times(), 3);
    let left = async |of_user, of_rate, of_tenant| {
        for (policy, left) in [(&user, of_user), (&rate, of_rate), (&tenant, of_tenant)] {
            case.left("of a set", policy, &key, left).await;
        }
    };
    left(2, 6, 0).await;
    case.same("granted without a slot of the tenant", case.acquire(&set, Times::up_to(4)).await.times(), 0);
    left(2, 6, 0).await;
    let part = |at: usize, units| Grant { units, ..slot(set[at].policy, &key, granted.each()[at].stamp()) };
    case.refund_all(&[part(0, 1), part(2, 2), part(0, 1)]).await;
    left(3, 6, 2).await;
    case.same("granted by two of three", case.acquire(&set, Times::between(2, 9)).await.times(), 2);
    left(1, 4, 0).await;
    case.refund_all(&[part(0, 3), part(2, 3)]).await;
    left(3, 4, 1).await;
}

pub(super) async fn concurrent_claims_and_second_releases_keep_the_limit(case: &Case) {
    let (policy, key) = (slots(100), Key::from("all callers"));
    let claim = async || {
        let verdicts = ask(case, |_| vec![Check::new(&policy, &key, 1)], Times::ONCE).await;
        verdicts.iter().filter(|verdict| verdict.is_granted()).map(stamp_of).collect::<Vec<_>>()
    };
    let stamps = claim().await;
    case.same("granted", stamps.len(), 100);
    case.same("stamps that differ", stamps.iter().collect::<HashSet<_>>().len(), 100);
    case.left("after the claims", &policy, &key, 0).await;
    // Each of the first 50 is released by several callers at once.
    let grant = |n: usize| slot(&policy, &key, stamps[n % 50]);
    all_refunded(case, grant).await;
    case.left("after releases", &policy, &key, 50).await;
    let again = claim().await;
    case.same("granted after releases", again.len(), 50);
    all_refunded(case, grant).await;
    case.left("after second releases", &policy, &key, 0).await;
}

/// Requests that are merged still have an identity each.
pub(super) async fn concurrent_claims_of_several_overlap_nowhere(case: &Case) {
    const LIMIT: u64 = 1_000;
    let (policy, key) = (slots(LIMIT), Key::from("all callers"));
    let verdicts = ask(case, |_| vec![Check::new(&policy, &key, 1)], Times::up_to(3)).await;
    let mut held = HashSet::new();
    for verdict in &verdicts {
        for turn in 0..verdict.times() {
            let is_new = held.insert(stamp_of(verdict).after_refund(&policy, turn.into()));
            case.same("an identity of its own", is_new, true);
        }
    }
    // One more than the callers ask, to see how the store answers.
    case.same("slots", held.len(), 3 * (CALLERS * EACH + 1));
    case.left("after the claims", &policy, &key, LIMIT - held.len() as u64).await;
    let mut released = 0;
    for verdict in verdicts.iter().step_by(20) {
        case.refund(&policy, &key, 2, stamp_of(verdict)).await;
        released += 2;
        case.left("after a release of two", &policy, &key, LIMIT - held.len() as u64 + released).await;
    }
}

fn stamp_of(verdict: &Verdict) -> Stamp {
    verdict.each()[0].stamp()
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

pub(super) async fn policies_of_another_name_share_no_slots(case: &Case) {
    let key = Key::from("caller");
    case.must_take(&slots(1), &key, 1).await;
    case.must_take(&Policy::in_flight("others", 1), &key, 1).await;
}

pub(super) async fn a_class_leaves_its_slots_to_others(case: &Case) {
    let (policy, class, key) = (slots(5), class(case, 2), Key::from("caller"));
    let stamps = [case.must_take(&class, &key, 1).await, case.must_take(&class, &key, 1).await];
    case.denied(&class, &key, 1).await;
    for left in [2, 1, 0] {
        case.must_take(&policy, &key, 1).await;
        case.left("to others", &policy, &key, left).await;
    }
    for stamp in stamps {
        case.refund(&class, &key, 1, stamp).await;
        case.denied(&class, &key, 1).await;
    }
    case.left("to others after releases", &policy, &key, 2).await;
}

pub(super) async fn a_grant_beyond_a_lowered_limit_is_released_as_a_whole(case: &Case) {
    let key = Key::from("caller");
    let verdict = case.acquire(&[Check::new(&slots(5), &key, 1)], Times::up_to(5)).await;
    case.same("granted", verdict.times(), 5);
    case.refund(&slots(2), &key, 5, stamp_of(&verdict)).await;
    case.left("after a release", &slots(5), &key, 5).await;
}
