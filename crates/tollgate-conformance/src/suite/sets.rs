//! Cases of several checks: all or nothing.

use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Times, Wait};

use super::case::{Case, SECOND, plain};

/// Seven policies with 5 units and five with 3: more than a verdict holds without an allocation.
fn many() -> Vec<Policy> {
    let mut policies = plain();
    let small = (0..5).map(|n| Policy::new(&format!("small {n}"), Quota::per_minute(3)));
    policies.extend(small);
    policies
}

pub(super) async fn a_denied_policy_charges_none_of_the_others(case: &Case) {
    let policies = many();
    for refusing in 0..policies.len() {
        let key = Key::from(format!("refused by {refusing}"));
        case.must_take(&policies[refusing], &key, policies[refusing].capacity()).await;
        let set: Vec<Check<'_>> = policies.iter().map(|policy| Check::new(policy, &key, 1)).collect();
        for times in [Times::ONCE, Times::up_to(3), Times::between(2, 9), Times::LOOK] {
            case.same("granted", case.acquire(&set, times).await.times(), 0);
        }
        for (i, policy) in policies.iter().enumerate() {
            let due = if i == refusing { 0 } else { policy.capacity() };
            case.left("after a denied set", policy, &key, due).await;
        }
    }
}

pub(super) async fn a_denied_key_charges_none_of_the_others(case: &Case) {
    for policy in plain() {
        for refusing in 0..6 {
            let keys: Vec<Key> = (0..6).map(|n| Key::from(format!("{refusing}/{n}"))).collect();
            case.must_take(&policy, &keys[refusing], 5).await;
            let set: Vec<Check<'_>> = keys.iter().map(|key| Check::new(&policy, key, 2)).collect();
            for times in [Times::ONCE, Times::up_to(2)] {
                case.same("granted", case.acquire(&set, times).await.times(), 0);
            }
            for (i, key) in keys.iter().enumerate() {
                case.left("after a denied set", &policy, key, if i == refusing { 0 } else { 5 }).await;
            }
        }
    }
}

pub(super) async fn only_policies_that_refuse_report_a_wait(case: &Case) {
    let key = Key::from("caller");
    let second = Duration::from_micros(SECOND);
    let slow = Policy::new("slow", Quota::new(5, 10 * second).burst(4));
    let slower = Policy::new("slower", Quota::new(5, 20 * second).burst(4));
    let roomy = Policy::new("roomy", Quota::per_second(100));
    let set = [Check::new(&roomy, &key, 3), Check::new(&slow, &key, 2), Check::new(&slower, &key, 1)];
    let verdict = case.acquire(&set, Times::up_to(9)).await;
    case.same("granted", verdict.times(), 2);
    let remaining: Vec<u64> = verdict.each().iter().map(|status| status.remaining()).collect();
    case.same("the statuses are in the order of the checks", remaining, vec![94, 0, 2]);
    case.must_take(&slower, &key, 2).await;
    let verdict = case.acquire(&set, Times::ONCE).await;
    let waits: Vec<Wait> = verdict.each().iter().map(|status| status.wait()).collect();
    case.same("waits", waits, vec![Wait::None, Wait::For(4 * second), Wait::For(4 * second)]);
    let remaining: Vec<u64> = verdict.each().iter().map(|status| status.remaining()).collect();
    case.same("remaining", remaining, vec![94, 0, 0]);
    let never = [Check::new(&slow, &key, 1), Check::new(&roomy, &key, 101)];
    let verdict = case.acquire(&never, Times::ONCE).await;
    case.same("the wait of a set with an impossible cost", verdict.wait(), Wait::Never);
    case.same("the other reports its own wait", verdict.each()[0].wait(), Wait::For(2 * second));
}

pub(super) async fn a_pair_named_twice_is_charged_the_sum(case: &Case) {
    for policy in plain() {
        let (key, other) = (Key::from("caller"), Key::from("other caller"));
        let once = |cost| Check::new(&policy, &key, cost);
        let verdict = case.acquire(&[once(1), Check::new(&policy, &key, 2)], Times::ONCE).await;
        case.same("granted", verdict.times(), 1);
        let remaining: Vec<u64> = verdict.each().iter().map(|status| status.remaining()).collect();
        case.same("both report the units left after both", remaining, vec![2, 2]);
        let verdict = case.acquire(&[once(2), once(1)], Times::ONCE).await;
        case.same("granted beyond the limit", verdict.times(), 0);
        let three = case.look(&policy, &key, 3).await.wait();
        case.same("the wait is that of the sum", verdict.wait(), three);
        case.same("never", case.acquire(&[once(3), once(3)], Times::ONCE).await.wait(), Wait::Never);
        let most = [once(u64::MAX), once(u64::MAX)];
        for times in [Times::ONCE, Times::between(u32::MAX, u32::MAX)] {
            case.same("the sum does not wrap", case.acquire(&most, times).await.wait(), Wait::Never);
        }
        case.same("granted", case.acquire(&[once(1), once(0), once(1)], Times::up_to(4)).await.times(), 1);
        case.left("in the end", &policy, &key, 0).await;
        case.left("of another key", &policy, &other, 5).await;
    }
}

pub(super) async fn an_empty_set_is_granted(case: &Case) {
    for times in [Times::ONCE, Times::up_to(7), Times::between(2, 3), Times::LOOK] {
        let verdict = case.acquire(&[], times).await;
        case.same("granted", verdict.times(), times.max());
        case.same("wait", verdict.wait(), Wait::None);
        case.same("delay", verdict.delay(), Duration::ZERO);
    }
}

pub(super) async fn sets_are_granted_as_often_as_the_scarcest_policy_allows(case: &Case) {
    let policies = many();
    let key = Key::from("caller");
    let set: Vec<Check<'_>> = policies.iter().map(|policy| Check::new(policy, &key, 1)).collect();
    case.same("granted", case.acquire(&set, Times::up_to(9)).await.times(), 3);
    for policy in &policies {
        case.left("after three", policy, &key, policy.capacity() - 3).await;
    }
    // A cost of 0 does not limit the grants.
    let free: Vec<Check<'_>> =
        policies.iter().map(|policy| Check::new(policy, &key, u64::from(policy.capacity() == 5))).collect();
    case.same("granted", case.acquire(&free, Times::between(2, 9)).await.times(), 2);
}

pub(super) async fn the_delay_of_a_set_is_the_longest_delay(case: &Case) {
    let key = Key::from("caller");
    let queue = |name, limit| {
        let max_wait = Duration::from_secs(1);
        Policy::new(name, Quota::per_second(limit)).with_algorithm(Algorithm::LeakyBucket { max_wait })
    };
    let (fast, slow, plain) =
        (queue("fast", 20), queue("slow", 5), Policy::new("plain", Quota::per_second(9)));
    let set = [Check::new(&fast, &key, 1), Check::new(&slow, &key, 1), Check::new(&plain, &key, 1)];
    for delay_ms in [0, 200, 400, 600, 800, 1_000] {
        let verdict = case.acquire(&set, Times::ONCE).await;
        case.same("delay", verdict.delay(), Duration::from_millis(delay_ms));
    }
    let verdict = case.acquire(&set, Times::ONCE).await;
    case.same("the wait of a full queue", verdict.wait(), Wait::For(Duration::from_millis(200)));
    case.same(
        "what is queued elsewhere",
        case.take(&fast, &key, 1).await.delay(),
        Duration::from_millis(300),
    );
}
