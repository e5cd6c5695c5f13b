//! What decides, whatever the rules are.

#[cfg(feature = "config")]
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tollgate_core::{Store, Unsent};

use super::refusal::Refusal;
use super::wait_queue::WaitQueues;
use crate::blocks::DenialCounts;
use crate::decision::InForce;
use crate::decision::observe::Observers;
use crate::errors::SetupError;
use crate::in_flight::SlotBook;
use crate::plan::Plan;
use crate::store::{ColdStore, NeverFails};
use crate::time::timer_after;
use crate::time::under_way::UnderWay;

/// The store, and what this process keeps of its callers. It outlives every plan.
#[derive(Clone, Debug)]
pub(crate) struct Engine<S> {
    pub(crate) store: S,
    /// The same store, for what no request waits for.
    pub(super) cold: ColdStore,
    pub(super) queues: WaitQueues<Refusal>,
    /// Whether callers that wait also wait for a store that is unavailable.
    pub(super) waits_for_store: bool,
    pub(super) slots: Arc<SlotBook>,
    pub(super) denials: Arc<DenialCounts>,
    pub(super) shadow: Arc<Shadow<S>>,
    pub(super) under_way: UnderWay,
}

/// How many checks of a limiter wait for the store at most. Others are dropped, and observers see
/// that.
const MOST_CHECKS: usize = 1_024;

/// What rules in shadow have of their own: their state, and what they count.
#[derive(Debug)]
pub(super) struct Shadow<S> {
    /// Made for the first of such rules.
    store: OnceLock<S>,
    pub(super) denials: DenialCounts,
    /// One for each check that may wait for the store.
    pub(super) free: Arc<Semaphore>,
}

impl<S> Shadow<S> {
    fn new() -> Shadow<S> {
        let free = Arc::new(Semaphore::new(MOST_CHECKS));
        Shadow { store: OnceLock::new(), denials: DenialCounts::new(), free }
    }
}

impl<S> Engine<S> {
    /// A plan by which it decides, and those who see what it decides.
    pub(super) fn in_force(&self, plan: Arc<Plan>, observers: Observers) -> Arc<InForce> {
        let (store, under_way) = (self.cold.clone(), self.under_way.clone());
        Arc::new(InForce { plan, observers, store, under_way })
    }
}

#[cfg(feature = "config")]
impl<S> Engine<S> {
    /// How many slots of each policy this process holds.
    pub(crate) fn slots_held(&self) -> BTreeMap<Box<str>, u64> {
        self.slots.counts()
    }

    /// How many blocks of each policy denials of this process have started.
    pub(crate) fn blocks_started(&self) -> BTreeMap<Box<str>, u64> {
        self.denials.blocks()
    }
}

impl<S: Store<Error: NeverFails>> Engine<S> {
    pub(super) fn new(store: S, waits_for_store: bool) -> Engine<S> {
        let cold = S::Error::without_type(store.clone());
        Engine {
            slots: Arc::new(SlotBook::new(&cold)),
            shadow: Arc::new(Shadow::new()),
            denials: Arc::new(DenialCounts::new()),
            under_way: UnderWay::default(),
            queues: WaitQueues::new(),
            waits_for_store,
            cold,
            store,
        }
    }

    /// Sends what is owed to the store, for no longer than `limit`. Returns what is left.
    pub(super) async fn close(&self, limit: Duration) -> Unsent {
        // The store counts what fails from now on. It is awaited last, since it may keep that.
        let (until, store) = (timer_after(limit), self.store.close(limit));
        let own = async {
            self.end_slots().await;
            self.under_way.ended().await;
        };
        let _ = timeout_at(until, own).await;
        let mut unsent = store.await;
        unsent.corrections += self.under_way.count() as u64;
        self.count_unsent_slots(&mut unsent);
        unsent
    }

    /// The store of rules in shadow.
    pub(super) fn shadow_store(&self) -> &S {
        self.shadow.store.get_or_init(|| self.store.in_shadow())
    }

    /// The store of rules in shadow, or of the others, without its type.
    pub(super) fn cold_store(&self, in_shadow: bool) -> ColdStore {
        match in_shadow {
            true => S::Error::without_type(self.shadow_store().clone()),
            false => self.cold.clone(),
        }
    }

    /// Checks whether the stores can enforce all policies of a plan.
    pub(super) fn supports(&self, plan: &Plan) -> Result<(), SetupError> {
        plan.supported_by(|in_shadow| if in_shadow { self.shadow_store() } else { &self.store })
    }
}
