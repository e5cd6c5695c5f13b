//! The slots of a limiter: how they are claimed, renewed and released.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tollgate_core::{Grant, Renewal, Store, Verdict};

use super::Slot;
use super::held::{Claim, HeldSlot, Keeper, RenewalPlace};
use super::releases::{Listener, OnItsWay, Releases, Releasing};
use crate::decision::{GrantStamp, NameCounts};
use crate::plan::{Ask, Plan};
use crate::store::ColdStore;
use crate::table::digest::{Digest, Secret};
use crate::time::ending::{Home, within};
use crate::time::timer_now;

/// How often in a time to live a holder looks for slots to renew. Those that are due until the next
/// look are renewed together, so many slots take few calls.
const LOOKS: u32 = 15;

/// After how many looks that are missed another task takes over.
const LATE_LOOKS: u32 = 3;

/// Which part of a time to live passes before a slot is renewed.
const RENEW_AFTER: u32 = 3;

/// Claims, renews and releases slots in a store.
pub(crate) struct SlotBook {
    store: ColdStore,
    secret: Secret,
    releases: Releases,
    renewals: Mutex<Renewals>,
    /// The slots that this process holds.
    held: NameCounts,
}

/// The slots that are to be renewed, the next first.
struct Renewals {
    /// The time between two looks for slots to renew.
    pause: Duration,
    due: BTreeMap<RenewalPlace, Weak<HeldSlot>>,
    /// The number of the latest slot.
    latest: u64,
    /// The number of the task that looks for slots to renew. Earlier ones end.
    task: u64,
    /// When it looked last. `None` if there is no task.
    looked: Option<Instant>,
}

impl SlotBook {
    fn renewals(&self) -> MutexGuard<'_, Renewals> {
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotBook {
    pub(crate) fn new(store: &ColdStore) -> SlotBook {
        let renewals =
            Renewals { pause: Duration::MAX, due: BTreeMap::new(), latest: 0, task: 0, looked: None };
        SlotBook {
            // A release and a renewal are worth something however late they are answered.
            store: store.with_deadline(None),
            secret: Secret::random(),
            releases: Releases::default(),
            renewals: Mutex::new(renewals),
            held: NameCounts::default(),
        }
    }

    fn digest(&self, plan: &Plan, ask: &Ask) -> Digest {
        self.secret.digest(plan.policy(&ask.policy).numbers().scope_hash(), ask.key.as_encoded())
    }

    /// What a verdict granted of slots. `asked` is when the store was asked, since a time to live
    /// begins after that. A failure policy grants none.
    pub(crate) fn held(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        asks: &[Ask],
        verdict: &Verdict,
        asked: Instant,
    ) -> Slot {
        let mut slot = Slot::default();
        if !verdict.is_granted() {
            return slot;
        }
        for (at, ask) in asks.iter().enumerate().filter(|(_, ask)| plan.is_slot(ask) && ask.cost > 0) {
            let Some(stamp) = GrantStamp::of(verdict, at) else { continue };
            let until = verdict.each()[at].ends_after().map(|ttl| asked + ttl);
            let digest = self.digest(plan, ask);
            let claim = Claim { plan: Arc::clone(plan), ask: ask.clone(), digest, stamp };
            let keeper: Arc<dyn Keeper> = self.clone();
            self.held.add(claim.policy().name());
            let held = Arc::new(HeldSlot::new(keeper, claim, until));
            if until.is_some() {
                self.renew_later(&held, asked);
            }
            if let Some(time) = held.claim.held_at_most() {
                held.end_after(time);
            }
            slot.0.push(held);
        }
        slot
    }

    /// The releases that are on their way of what is asked.
    pub(crate) fn releasing(&self, plan: &Plan, asks: &[Ask]) -> Option<Releasing> {
        let mut in_flight = asks.iter().filter(|ask| plan.is_slot(ask)).peekable();
        // Most requests ask for no slot, and take no lock.
        in_flight.peek()?;
        self.releases.on_their_way(in_flight.map(|ask| self.digest(plan, ask)))
    }

    /// Hears of releases of what is asked by this process.
    pub(crate) fn listen(&self, plan: &Plan, ask: &Ask) -> Listener {
        self.releases.listen(self.digest(plan, ask))
    }

    /// Notes that a slot is to be renewed, a part of its time to live after it was `asked` for.
    fn renew_later(self: &Arc<Self>, held: &Arc<HeldSlot>, asked: Instant) {
        let mut renewals = self.renewals();
        renewals.latest += 1;
        let place = (asked + renewal_time(held), renewals.latest);
        if !held.stands_at(place) {
            return;
        }
        renewals.due.insert(place, Arc::downgrade(held));
        let pause = held.claim.policy().quota().window() / LOOKS;
        if pause < renewals.pause {
            // A task that looks as often takes over.
            renewals.pause = pause;
            renewals.looked = None;
        }
        // Its runtime may have stopped, or nothing may drive it.
        let pause = renewals.pause;
        let is_late = |looked: Instant| looked + LATE_LOOKS * pause < timer_now();
        if let (true, Ok(runtime)) = (renewals.looked.is_none_or(is_late), Handle::try_current()) {
            renewals.task += 1;
            renewals.looked = Some(timer_now());
            let task = RenewalTask { slots: Arc::clone(self), number: renewals.task };
            drop(renewals);
            runtime.spawn(task.run());
        }
    }

    /// Renews the slots that are due until the next look, and returns the time until then. `None`
    /// if there are no slots, or if another task looks for them.
    fn renew_due(self: &Arc<Self>, task: u64) -> Option<Duration> {
        let now = timer_now();
        // Dropped after the lock, which the end of a slot needs.
        let mut found = Vec::new();
        let mut due = Vec::new();
        let mut renewals = self.renewals();
        if renewals.task != task {
            return None;
        }
        if renewals.due.is_empty() {
            renewals.looked = None;
            return None;
        }
        renewals.looked = Some(now);
        let pause = renewals.pause;
        let later = renewals.due.split_off(&(now + pause, 0));
        for ((_, number), held) in mem::replace(&mut renewals.due, later) {
            let Some(held) = held.upgrade() else { continue };
            let next = (now + renewal_time(&held), number);
            let (is_held, begins) = held.begin_renewal(next);
            if is_held {
                renewals.due.insert(next, Arc::downgrade(&held));
            }
            if begins { &mut due } else { &mut found }.push(held);
        }
        drop(renewals);
        if !due.is_empty() {
            self.renew(due, now);
        }
        Some(pause)
    }

    /// Renews slots in a task of its own, so that a call without an answer holds up no other.
    fn renew(&self, due: Vec<Arc<HeldSlot>>, sent: Instant) {
        // The grants borrow from these, and the report has the others.
        let held = due.clone();
        let grants: Vec<Grant<'_>> = held.iter().map(|held| held.claim.grant()).collect();
        let unanswered = UnansweredRenewals { held: Mutex::new(due.into_iter().map(Some).collect()), sent };
        let renewed = self.store.renew(&grants, Arc::new(move |at, renewal| unanswered.answer(at, renewal)));
        tokio::spawn(renewed);
    }

    /// How many slots of each policy this process holds.
    #[cfg(feature = "config")]
    pub(crate) fn counts(&self) -> BTreeMap<Box<str>, u64> {
        self.held.all()
    }

    /// How many releases are on their way.
    pub(crate) fn unanswered(&self) -> u64 {
        self.releases.unanswered()
    }

    /// Ends all slots that have a time to live, and waits until the store has answered each release
    /// of this process.
    pub(crate) async fn give_back(&self) {
        let all: Vec<Arc<HeldSlot>> = self.renewals().due.values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|held| held.end());
        if let Some(releasing) = self.releases.all_on_their_way() {
            releasing.answered().await;
        }
    }
}

/// The time after which a slot is renewed.
fn renewal_time(held: &HeldSlot) -> Duration {
    held.claim.policy().quota().window() / RENEW_AFTER
}

/// Renewals that were sent. If this is dropped, by a store that failed or a runtime that stops,
/// those that were not answered end without an answer.
struct UnansweredRenewals {
    /// `None` once it was answered.
    held: Mutex<Vec<Option<Arc<HeldSlot>>>>,
    sent: Instant,
}

impl UnansweredRenewals {
    fn answer(&self, at: usize, renewal: Renewal) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answered) = held.get_mut(at).and_then(Option::take) else { return };
        // The end of a slot sends its release.
        drop(held);
        answered.end_renewal(renewal, self.sent + answered.claim.policy().quota().window());
    }
}

impl Drop for UnansweredRenewals {
    fn drop(&mut self) {
        let count = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).len();
        (0..count).for_each(|at| self.answer(at, Renewal::Unanswered));
    }
}

/// The task that renews slots, as long as there are any.
struct RenewalTask {
    slots: Arc<SlotBook>,
    number: u64,
}

impl RenewalTask {
    async fn run(self) {
        while let Some(pause) = self.slots.renew_due(self.number) {
            sleep(pause).await;
        }
    }
}

impl Drop for RenewalTask {
    /// If its runtime stops, the next claim starts another one.
    fn drop(&mut self) {
        let mut renewals = self.slots.renewals();
        if renewals.task == self.number {
            renewals.looked = None;
        }
    }
}

impl Keeper for SlotBook {
    fn announce(&self, claim: &Claim) -> OnItsWay {
        self.releases.announce(claim.digest)
    }

    fn release(self: Arc<Self>, claim: &Claim, announced: OnItsWay, home: &Home) {
        self.held.remove(claim.policy().name());
        let ttl = claim.policy().quota().window();
        home.end(|| {
            let release = self.store.refund(&[claim.grant()]);
            async move {
                // A release that fails, or takes longer, is lost: the time to live ends the slot.
                let _ = within(ttl, release).await;
                drop(announced);
            }
        });
    }

    fn forget(&self, place: RenewalPlace) {
        self.renewals().due.remove(&place);
    }
}

impl fmt::Debug for SlotBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotBook(..)")
    }
}
