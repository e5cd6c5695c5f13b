//! Cases of slots that are renewed, and that end with their time to live in stores that have times
//! to live.

use std::time::Duration;

use tollgate_core::{Check, Key, Policy, Quota, Renewal, Times, Timestamp, Wait};

use super::case::{Case, SECOND};
use super::slots::{TTL, has_ttl, slot, slots, waits_until};

pub(super) async fn a_slot_is_held_for_a_time_to_live_or_until_it_is_released(case: &Case) {
    let (policy, key) = (slots(1), Key::from("caller"));
    let has_ttl = has_ttl(case).await;
    let stamp = case.must_take(&policy, &key, 1).await;
    for _ in 0..5 {
        case.advance(TTL - 1);
        case.left("before the time to live ends", &policy, &key, 0).await;
        let renewals = case.renew(&[slot(&policy, &key, stamp)]).await;
        case.same("renewals", renewals, vec![Renewal::Held]);
    }
    case.advance(TTL);
    case.left("a time to live after the last renewal", &policy, &key, has_ttl.into()).await;
    case.refund(&policy, &key, 1, stamp).await;
    case.left("after a release", &policy, &key, 1).await;
}

pub(super) async fn a_release_after_the_time_to_live_frees_nothing(case: &Case) {
    if !has_ttl(case).await {
        return;
    }
    let (policy, key) = (slots(1), Key::from("caller"));
    let first = case.must_take(&policy, &key, 1).await;
    case.advance(TTL);
    case.must_take(&policy, &key, 1).await;
    case.refund(&policy, &key, 1, first).await;
    case.left("after a release that came too late", &policy, &key, 0).await;
}

pub(super) async fn an_unknown_slot_is_taken_again_if_there_is_room(case: &Case) {
    if !has_ttl(case).await {
        return;
    }
    let (policy, key) = (slots(2), Key::from("caller"));
    let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(2)).await;
    let [first, second] = [0, 1].map(|turn| verdict.each()[0].stamp().after_refund(&policy, turn));
    case.advance(TTL);
    let third = case.must_take(&policy, &key, 1).await;
    let renew = [first, second, third].map(|stamp| slot(&policy, &key, stamp));
    let due = vec![Renewal::Held, Renewal::Lost, Renewal::Held];
    case.same("renewals of two that have ended and one that is held", case.renew(&renew).await, due);
    case.left("after a slot was taken again", &policy, &key, 0).await;
    case.refund(&policy, &key, 1, second).await;
    case.left("after a release of a lost slot", &policy, &key, 0).await;
    case.refund(&policy, &key, 1, third).await;
    case.advance(TTL - 1);
    case.left("a slot that was taken again is held", &policy, &key, 1).await;
    case.reset(&key, &[&policy]).await;
    case.same("a renewal after a reset", case.renew(&renew[..1]).await, vec![Renewal::Held]);
    case.left("after a reset and a renewal", &policy, &key, 1).await;
}

pub(super) async fn looks_and_denials_prolong_no_slot(case: &Case) {
    if !has_ttl(case).await {
        return;
    }
    let (policy, key) = (slots(1), Key::from("caller"));
    let rate = Policy::new("rate", Quota::per_day(1));
    case.must_take(&rate, &key, 1).await;
    case.must_take(&policy, &key, 1).await;
    for _ in 0..3 {
        case.advance(TTL / 3 - 1);
        case.left("a look", &policy, &key, 0).await;
        case.denied(&policy, &key, 1).await;
        case.same("a cost of 0", case.take(&policy, &key, 0).await.times(), 1);
        let set = [Check::new(&policy, &key, 1), Check::new(&rate, &key, 1)];
        case.same("granted without a slot and a rate", case.acquire(&set, Times::ONCE).await.times(), 0);
    }
    case.advance(3);
    case.left("after the time to live", &policy, &key, 1).await;
}

pub(super) async fn a_denial_waits_until_enough_times_to_live_end(case: &Case) {
    let (policy, key) = (slots(3), Key::from("caller"));
    let has_ttl = has_ttl(case).await;
    let mut stamps = Vec::new();
    for _ in 0..3 {
        stamps.push(case.must_take(&policy, &key, 1).await);
        case.advance(2 * SECOND);
    }
    case.renew(&[slot(&policy, &key, stamps[0])]).await;
    // They now end 11, 13 and 15 seconds later: the second, the third and the first.
    for (limit, wait) in [(3, 11), (2, 13), (1, 15)] {
        let denied = case.denied(&slots(limit), &key, 1).await;
        waits_until(case, denied, has_ttl.then_some(wait * SECOND));
        case.same("the wait of a look", case.look(&slots(limit), &key, 1).await.wait(), Wait::For(denied));
    }
    for (least, wait) in [(1, 11), (2, 13), (3, 15)] {
        let denied = case.acquire(&[Check::new(&policy, &key, 1)], Times::between(least, 3)).await;
        let Wait::For(denied) = denied.wait() else { case.fail(&format!("{least} are denied: {denied:?}")) };
        waits_until(case, denied, has_ttl.then_some(wait * SECOND));
    }
    if has_ttl {
        case.advance(11 * SECOND - 1);
        case.denied(&policy, &key, 1).await;
        case.advance(1);
        case.must_take(&policy, &key, 1).await;
    }
}

pub(super) async fn a_clock_that_steps_back_holds_no_slot_beyond_a_time_to_live_from_now(case: &Case) {
    let (policy, key) = (slots(2), Key::from("caller"));
    let has_ttl = has_ttl(case).await;
    case.advance(1_000 * TTL);
    for _ in 0..2 {
        case.must_take(&policy, &key, 1).await;
    }
    let now = case.time.now().as_micros();
    case.time.set(Timestamp::from_micros(now - 900 * TTL));
    // A refusal finds out.
    case.denied(&policy, &key, 1).await;
    case.advance(TTL - 1);
    case.left("before a time to live after the refusal", &policy, &key, 0).await;
    case.advance(1);
    case.left("a time to live after the refusal", &policy, &key, if has_ttl { 2 } else { 0 }).await;
}

/// The longer and the shorter time to live of an edit, in both orders.
pub(super) async fn another_time_to_live_ends_no_slot_and_adds_none(case: &Case) {
    let has_ttl = has_ttl(case).await;
    let of = |ttl| slots(1).with_ttl(Duration::from_micros(ttl));
    for (before, after) in [(4 * TTL, TTL), (TTL, 4 * TTL)] {
        let (earlier, later, key) = (of(before), of(after), Key::from(before));
        let stamp = case.must_take(&earlier, &key, 1).await;
        for span in [before / 2, before - before / 2 - 1, 1] {
            case.denied(&later, &key, 1).await;
            case.left("by the other time to live", &later, &key, 0).await;
            case.advance(span);
        }
        case.left("when the time to live has ended", &later, &key, has_ttl.into()).await;
        // The holder renews with the time to live that it came with.
        case.same("a renewal", case.renew(&[slot(&earlier, &key, stamp)]).await, vec![Renewal::Held]);
        case.advance(before - 1);
        case.denied(&later, &key, 1).await;
        case.refund(&later, &key, 1, stamp).await;
        case.must_take(&later, &key, 1).await;
        case.left("after a release", &earlier, &key, 0).await;
    }
}
