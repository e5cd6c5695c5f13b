//! Cases of grants that are corrected to what was used.

use tollgate_core::{Grant, Key, Policy, Stamp};

use super::case::{Case, WINDOW, plain, with_debt};

/// Fails unless a correction of these grants has this outcome: charged, debt, forgiven.
async fn settled(
    case: &Case,
    (policy, key): (&Policy, &Key),
    grants: &[(u64, Stamp)],
    total: u64,
    due: (u64, u64, u64),
) {
    let grants = grants.iter().map(|&(units, stamp)| Grant { policy, key, units, stamp, share: None });
    let settled = case.settle(&grants.collect::<Vec<_>>(), total).await;
    let what = format!("{total} used of {}: (charged, debt, forgiven)", policy.name());
    case.same(&what, (settled.charged, settled.debt, settled.forgiven), due);
}

pub(super) async fn less_than_was_granted_is_refunded(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        let of = (&policy, &key);
        let stamp = case.must_take(&policy, &key, 5).await;
        settled(case, of, &[(5, stamp)], 5, (5, 0, 0)).await;
        case.left("after all was used", &policy, &key, 0).await;
        settled(case, of, &[(5, stamp)], 2, (2, 0, 0)).await;
        case.left("after 2 of 5 were used", &policy, &key, 3).await;
        settled(case, of, &[(2, stamp.after_refund(&policy, 3))], 0, (0, 0, 0)).await;
        case.left("after nothing was used", &policy, &key, 5).await;
        settled(case, of, &[], 0, (0, 0, 0)).await;
        settled(case, of, &[], 3, (0, 0, 3)).await;
        case.left("without a grant", &policy, &key, 5).await;
    }
}

pub(super) async fn the_newest_grant_is_refunded_first(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        let older = case.must_take(&policy, &key, 4).await;
        // What the older grant took has returned.
        case.advance(2 * WINDOW);
        let newer = case.must_take(&policy, &key, 4).await;
        settled(case, (&policy, &key), &[(4, older), (4, newer)], 6, (6, 0, 0)).await;
        case.left("after 2 of the newer 4 were used", &policy, &key, 3).await;
        let rest = newer.after_refund(&policy, 2);
        settled(case, (&policy, &key), &[(4, older), (2, rest)], 1, (1, 0, 0)).await;
        case.left("after none of the newer were used", &policy, &key, 5).await;
    }
}

pub(super) async fn more_than_was_granted_is_charged(case: &Case) {
    let key = Key::from("caller");
    for policy in with_debt(5) {
        let grants =
            [(2, case.must_take(&policy, &key, 2).await), (1, case.must_take(&policy, &key, 1).await)];
        settled(case, (&policy, &key), &grants, 4, (4, 0, 0)).await;
        case.left("after 4 were used", &policy, &key, 1).await;
        settled(case, (&policy, &key), &grants, 6, (6, 2, 0)).await;
        case.left("in debt", &policy, &key, 0).await;
        settled(case, (&policy, &key), &grants, 9, (6, 3, 3)).await;
        case.charged(&policy, &key, 1, (0, 0, 1)).await;
    }
    let queue = &plain()[1];
    let stamp = case.must_take(queue, &key, 2).await;
    settled(case, (queue, &key), &[(2, stamp)], 9, (2, 0, 7)).await;
    case.left("after a queue forgave 7", queue, &key, 3).await;
}

pub(super) async fn more_than_was_granted_is_charged_when_it_is_settled(case: &Case) {
    let key = Key::from("caller");
    for policy in with_debt(5) {
        let stamp = case.must_take(&policy, &key, 5).await;
        case.advance(2 * WINDOW);
        settled(case, (&policy, &key), &[(5, stamp)], 3, (3, 0, 0)).await;
        case.left("after a late refund", &policy, &key, 5).await;
        settled(case, (&policy, &key), &[(5, stamp)], 7, (7, 0, 0)).await;
        case.left("after a late charge", &policy, &key, 3).await;
    }
}
