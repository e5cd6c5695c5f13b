//! Cases of keys that are blocked.

use std::time::Duration;

use tollgate_core::{BlockStart, Check, Key, Policy, Quota, Times, Timestamp, Wait};

use super::case::{Case, SECOND};

const BLOCK: u64 = 90 * SECOND;

fn guesses() -> Policy {
    Policy::new("guesses", Quota::per_day(9)).block_after(3, Duration::from_micros(BLOCK))
}

/// The policy that refuses blocked keys.
fn block(case: &Case) -> Policy {
    guesses().numbers().block().unwrap_or_else(|| case.fail("a policy that blocks has no block"))
}

pub(super) async fn a_block_allows_and_charges_nothing_until_it_starts(case: &Case) {
    let (block, key) = (block(case), Key::from("caller"));
    for _ in 0..3 {
        let verdict = case.acquire(&[Check::new(&block, &key, 1)], Times::up_to(1_000)).await;
        case.same("granted", verdict.times(), 1_000);
        case.same("wait", case.look(&block, &key, 1).await.wait(), Wait::None);
    }
}

pub(super) async fn a_block_refuses_until_it_ends(case: &Case) {
    let (block, key) = (block(case), Key::from("caller"));
    case.block(&block, &key, BlockStart::Started).await;
    let guesses = guesses();
    let set = [Check::new(&guesses, &key, 1), Check::new(&block, &key, 1)];
    let denied = case.acquire(&set, Times::ONCE).await;
    case.same("granted to a blocked key", denied.times(), 0);
    case.same("wait", denied.each()[1].wait(), Wait::For(Duration::from_micros(BLOCK)));
    case.same("the quota has room", denied.each()[0].wait(), Wait::None);
    case.left("after a refusal by the block", &guesses, &key, 9).await;
    case.same("of another key", case.take(&block, &Key::from("other"), 1).await.times(), 1);
    case.same("a cost of 0", case.take(&block, &key, 0).await.times(), 1);
    case.advance(BLOCK / 3);
    case.block(&block, &key, BlockStart::GoesOn).await;
    case.advance(BLOCK - BLOCK / 3 - 1);
    let last = Wait::For(Duration::from_micros(1));
    case.same("the wait before the end", case.look(&block, &key, 1).await.wait(), last);
    case.advance(1);
    case.same("granted after the end", case.acquire(&set, Times::ONCE).await.times(), 1);
}

pub(super) async fn a_reset_lifts_a_block(case: &Case) {
    let (block, key) = (block(case), Key::from("caller"));
    case.block(&block, &key, BlockStart::Started).await;
    case.same("granted to a blocked key", case.take(&block, &key, 1).await.times(), 0);
    case.reset(&key, &[&block]).await;
    case.same("granted after a reset", case.take(&block, &key, 1).await.times(), 1);
}

/// A policy whose blocks last for so many seconds.
fn block_of(case: &Case, seconds: u64) -> Policy {
    let policy = Policy::new("guesses", Quota::per_day(9)).block_after(3, Duration::from_secs(seconds));
    policy.numbers().block().unwrap_or_else(|| case.fail("a policy that blocks has no block"))
}

pub(super) async fn another_time_changes_no_block_that_runs(case: &Case) {
    for (before, after) in [(90, 5), (90, 900), (90, 366 * 86_400)] {
        let (earlier, later) = (block_of(case, before), block_of(case, after));
        let key = Key::from(after);
        case.block(&earlier, &key, BlockStart::Started).await;
        case.advance(SECOND);
        for _ in 0..2 {
            let wait = case.look(&later, &key, 1).await.wait();
            case.same("the wait by the other time", wait, Wait::For(Duration::from_secs(before - 1)));
            case.same("granted by the other time", case.take(&later, &key, 1).await.times(), 0);
            // A block that runs is not started again.
            case.block(&later, &key, BlockStart::GoesOn).await;
        }
        case.advance((before - 1) * SECOND);
        case.same("granted after the end", case.take(&later, &key, 1).await.times(), 1);
        case.block(&later, &key, BlockStart::Started).await;
        let wait = case.look(&earlier, &key, 1).await.wait();
        case.same("the wait of a new block", wait, Wait::For(Duration::from_secs(after)));
    }
}

pub(super) async fn a_clock_that_steps_back_blocks_no_key_for_longer_than_its_block(case: &Case) {
    let (block, other, key) = (block_of(case, 90), block_of(case, 5), Key::from("caller"));
    case.advance(10_000 * SECOND);
    case.block(&block, &key, BlockStart::Started).await;
    let now = case.time.now();
    case.time.set(Timestamp::from_micros(now.as_micros() - 9_000 * SECOND));
    case.same("granted after the step", case.take(&other, &key, 1).await.times(), 0);
    let wait = case.look(&block, &key, 1).await.wait();
    case.same("the wait after the step", wait, Wait::For(Duration::from_secs(90)));
    case.advance(90 * SECOND);
    case.same("granted after that wait", case.take(&block, &key, 1).await.times(), 1);
}
