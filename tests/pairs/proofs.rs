//! What each capability does, together with any other.

use http::Request;
use tokio::task::yield_now;
use tollgate::Outcome;
use tollgate::store::{Source, Store, StoreError};
use tollgate::usage::UsageTotals;
use tollgate::{Head, Reason, Timestamp};

use super::{
    Blocks, Calendar, Capability, Charges, Classes, DenyCache, LIMIT, Leased, Pair, Quotas, RESERVED, Shadow,
    Slots, Tiers, Tracking, key,
};

/// What an error says of two capabilities that exclude each other.
pub(super) fn refusal(both: [Capability; 2]) -> Option<&'static str> {
    match both {
        [Slots, Charges] => Some("reserve"),
        [Slots, Shadow] => Some("shadow"),
        [Charges, Shadow] => Some("shadow"),
        _ => None,
    }
}

impl<S: Store<Error: StoreError> + UsageTotals> Pair<S> {
    pub(super) async fn proves(&self, one: Capability) {
        match one {
            Leased => self.leases_are_spent_to_the_last_unit().await,
            DenyCache => self.denials_are_remembered_until_a_reset().await,
            Classes => self.a_class_leaves_its_units_to_others().await,
            Blocks => self.denials_block_until_it_is_lifted().await,
            Slots => self.a_slot_comes_back_with_its_permit().await,
            Charges => self.what_was_not_used_is_given_back().await,
            Shadow => self.nothing_is_refused_and_all_is_seen().await,
            Tiers => self.assert_passed(&self.use_up("tiers", Some(("x-plan", "pro"))).await, 2 * LIMIT),
            Quotas => self.assert_passed(&self.use_up("quotas", Some(("x-quota", "90"))).await, 90),
            Calendar => self.the_quota_is_whole_again_at_midnight().await,
            Tracking => self.the_total_is_what_passed().await,
        }
    }

    async fn leases_are_spent_to_the_last_unit(&self) {
        self.assert_passed(&self.use_up("leases", None).await, LIMIT);
        let Some(leases) = &self.leases else { return };
        // The store sees each slot, charge and tracked use. A rule in shadow has leases of its own.
        let is_leased = ![Slots, Charges, Tracking, Shadow].iter().any(|other| self.has(*other));
        assert_eq!(leases.stats().fetches > 0, is_leased, "{:?}: {:?}", self.both, leases.stats());
    }

    async fn denials_are_remembered_until_a_reset(&self) {
        let permits = self.use_up("deny-cache", None).await;
        self.assert_passed(&permits, LIMIT);
        if self.has(Shadow) {
            return;
        }
        assert!(self.ask("deny-cache", None).await.is_err());
        let last = *self.seen.lock().unwrap().last().unwrap();
        // A slot may be free at any time.
        let is_cached = !self.has(Slots);
        assert_eq!(last, (Outcome::Denied, if is_cached { Source::DenyCache } else { Source::Store }));
        self.limiter.reset(&key("deny-cache")).await;
        assert!(self.ask("deny-cache", None).await.is_ok());
    }

    async fn a_class_leaves_its_units_to_others(&self) {
        let batch = self.use_up("classes", Some(("x-class", "batch"))).await;
        self.assert_passed(&batch, LIMIT / 2);
        self.assert_passed(&self.use_up("classes", None).await, LIMIT / 2);
    }

    async fn denials_block_until_it_is_lifted(&self) {
        let permits = self.use_up("blocks", None).await;
        self.assert_passed(&permits, LIMIT);
        if self.has(Shadow) {
            return;
        }
        // A block starts behind the answer to the denial.
        loop {
            let reason = self.ask("blocks", None).await.unwrap_err().reason();
            if reason == Reason::Blocked {
                break;
            }
            assert_eq!(reason, Reason::QuotaExceeded);
            yield_now().await;
        }
        self.limiter.unblock("pair", &key("blocks")).await;
        assert_eq!(self.ask("blocks", None).await.unwrap_err().reason(), Reason::QuotaExceeded);
    }

    async fn a_slot_comes_back_with_its_permit(&self) {
        let mut permits = self.use_up("slots", None).await;
        self.assert_passed(&permits, LIMIT);
        permits.pop();
        // The release is on its way to Redis.
        while let Err(denial) = self.ask("slots", None).await {
            if !denial.violated().any(|policy| policy == self.name_of(Slots)) {
                break;
            }
            yield_now().await;
        }
    }

    fn name_of(&self, one: Capability) -> String {
        if self.both == [Slots, Calendar] { format!("{one:?}") } else { "pair".to_owned() }
    }

    async fn slots_left(&self, user: &str) -> u64 {
        let request = Request::builder().header("x-user", user).body(()).unwrap();
        let report = self.limiter.look(&Head::from(&request)).await.unwrap();
        report.get(&self.name_of(Slots)).unwrap().1.remaining()
    }

    async fn what_was_not_used_is_given_back(&self) {
        let mut permits = self.use_up("charges", None).await;
        self.assert_passed(&permits, LIMIT);
        for permit in &mut permits {
            permit.charge("pair").settle(1).await;
        }
        self.assert_passed(&self.use_up("charges", None).await, LIMIT - LIMIT / RESERVED);
    }

    async fn nothing_is_refused_and_all_is_seen(&self) {
        self.seen.lock().unwrap().clear();
        *self.asked.lock().unwrap() = 0;
        self.assert_passed(&self.use_up("shadow", None).await, LIMIT);
        let seen =
            |outcome| self.seen.lock().unwrap().iter().filter(|(seen, _)| *seen == outcome).count() as u64;
        let (allowed, denied) = (seen(Outcome::ShadowAllowed), seen(Outcome::ShadowDenied));
        // A busy machine sends some too late.
        let dropped = seen(Outcome::ShadowDropped);
        assert_eq!((allowed, allowed + denied + dropped), (LIMIT, 5 * LIMIT), "{dropped} dropped");
    }

    async fn the_quota_is_whole_again_at_midnight(&self) {
        self.assert_passed(&self.use_up("calendar", None).await, LIMIT);
        while self.has(Slots) && self.slots_left("calendar").await < LIMIT {
            yield_now().await;
        }
        let day = 86_400_000_000;
        self.time.set(Timestamp::from_micros(self.time.now().as_micros().next_multiple_of(day)));
        self.assert_passed(&self.use_up("calendar", None).await, LIMIT);
    }

    async fn the_total_is_what_passed(&self) {
        let permits = self.use_up("tracking", None).await;
        self.assert_passed(&permits, LIMIT);
        let total = self.store.total_of("pair", &key("tracking")).await.unwrap().map(|total| total.total);
        let due = if self.has(Shadow) { None } else { Some(LIMIT) };
        assert_eq!(total, due, "{:?}", self.both);
    }
}
