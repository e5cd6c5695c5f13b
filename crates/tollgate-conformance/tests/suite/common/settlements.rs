//! Corrections of grants, each with a mistake.

use tollgate_core::algorithm::State;
use tollgate_core::{Algorithm, Grant, Policy, Settled, Timestamp, settle as settle_rightly};

use super::{Mistake, OneLock, block_on, counts_in_windows};

/// [`Store::settle`](tollgate_core::Store::settle) with the mistake of this store, if it is one of
/// corrections.
pub(super) fn settle(store: &OneLock, grants: &[Grant<'_>], total: u64) -> Settled {
    let granted = grants.iter().map(|grant| grant.units).sum();
    if store.mistake == Mistake::ClassOwesAlone
        && let Some(Grant { policy, .. }) = grants.last()
        && let Ok(policy) = Policy::try_from_parts(policy.name(), policy.quota(), policy.algorithm())
    {
        let alone: Vec<_> = grants.iter().map(|grant| Grant { policy: &policy, ..*grant }).collect();
        return rightly(store, &alone, total);
    }
    let newest = grants.last().filter(|_| total > granted);
    let Some((newest, twice)) =
        newest.and_then(|newest| Some((newest, newest.policy.numbers().with_debt()?)))
    else {
        let backwards = || grants.iter().rev().copied().collect::<Vec<_>>();
        return match store.mistake {
            Mistake::SettleRefundsNothing if total <= granted => {
                Settled { charged: total, ..Settled::default() }
            }
            Mistake::SettleRefundsTheOldestFirst => rightly(store, &backwards(), total),
            _ => rightly(store, grants, total),
        };
    };
    let before = store.lock().clone();
    let settled = rightly(store, grants, total);
    let charged = settled.charged - granted;
    let now = store.now();
    let record = |units: u64, at: Timestamp| {
        let mut states = store.lock();
        let state = store.state(&mut states, &twice, newest.key, now);
        let look = state.look(&twice, at);
        state.charge(&twice, at, look, units);
    };
    match store.mistake {
        Mistake::ChargeDoesNothing => *store.lock() = before,
        Mistake::ChargeStopsAtTheLimit => {
            let within = charged - settled.debt;
            *store.lock() = before;
            record(within, now);
            let charged = granted + within;
            return Settled { charged, forgiven: total - charged, ..Settled::default() };
        }
        Mistake::ChargeLandsInTheNextWindow if counts_in_windows(&twice) => {
            *store.lock() = before;
            record(charged, now.saturating_add(twice.quota().window()));
        }
        Mistake::ChargeRenewsTheWindow if charged > 0 => {
            let mut states = store.lock();
            let state = store.state(&mut states, &twice, newest.key, now);
            let used = twice.capacity() - state.look(&twice, now).room;
            *state = State::new(&twice);
            let look = state.look(&twice, now);
            state.charge(&twice, now, look, used);
        }
        Mistake::DebtHasNoEnd => {
            let more = Grant { policy: &twice, units: 0, ..*newest };
            let Settled { charged, forgiven, .. } = rightly(store, &[more], settled.forgiven);
            return Settled {
                charged: settled.charged + charged,
                debt: settled.debt + charged,
                forgiven,
                ..Settled::default()
            };
        }
        Mistake::NoDebtIsReported => return Settled { debt: 0, ..settled },
        _ => {}
    }
    settled
}

fn rightly(store: &OneLock, grants: &[Grant<'_>], total: u64) -> Settled {
    let Ok(settled) = block_on(settle_rightly(store, grants, total));
    settled
}

/// Forgives the debt of a window that began with a request, and leaves an empty quota.
pub(super) fn forgive(state: &mut State, policy: &Policy, now: Timestamp) {
    let Some(twice) = policy.numbers().with_debt() else { return };
    if policy.algorithm() == Algorithm::FIXED_WINDOW && state.look(&twice, now).room < policy.capacity() {
        *state = State::new(policy);
        let look = state.look(policy, now);
        state.charge(policy, now, look, look.room);
    }
}
