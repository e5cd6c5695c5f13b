//! The slots of a limiter: how they are claimed, renewed and released.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tollgate_core::{Grant, Reply, Store, Verdict};

use super::Slot;
use super::held::{Claim, Held, Keeper, Place};
use super::releases::{Listener, OnItsWay, Releases, Releasing};
use crate::limiter::NeverFails;
use crate::observe::Observers;
use crate::policy_set::{Ask, PolicySet};
use crate::table::digest::{Digest, Secret};
use crate::time::timer_now;

/// How often in a lease a holder looks for slots to renew. Those that are due until the next look
/// are renewed together, so many slots take few calls.
const LOOKS: u32 = 15;

/// Which part of a lease passes before a slot is renewed.
const RENEW_AFTER: u32 = 3;

/// Claims, renews and releases slots in a store.
pub(crate) struct Slots<S> {
    policies: Arc<PolicySet>,
    store: S,
    secret: Secret,
    releases: Releases,
    renewals: Mutex<Renewals>,
    /// The time between two looks for slots to renew.
    pause: Duration,
}

/// The slots that are to be renewed, the next first.
#[derive(Default)]
struct Renewals {
    due: BTreeMap<Place, Weak<Held>>,
    slots: u64,
    is_running: bool,
}

impl<S> Slots<S> {
    fn renewals(&self) -> MutexGuard<'_, Renewals> {
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store<Error: NeverFails>> Slots<S> {
    /// Those of these policies, if one is for requests in flight.
    pub(crate) fn new(policies: &Arc<PolicySet>, store: &S) -> Option<Arc<Slots<S>>> {
        let shortest = policies.policies().iter().filter_map(|policy| policy.lease()).min()?;
        Some(Arc::new(Slots {
            policies: Arc::clone(policies),
            // A release and a renewal are worth something however late they are answered.
            store: store.patient(),
            secret: Secret::random(),
            releases: Releases::default(),
            renewals: Mutex::default(),
            pause: shortest / LOOKS,
        }))
    }

    fn digest(&self, ask: &Ask) -> Digest {
        self.secret.digest(self.policies.policy(ask.policy).scope_hash(), ask.key.as_encoded())
    }

    /// What a verdict granted of slots. `asked` is when the store was asked, since a lease begins
    /// after that. A failure policy grants none.
    pub(crate) fn held(
        self: &Arc<Self>,
        observers: &Observers,
        asks: &[Ask],
        verdict: &Verdict,
        asked: Instant,
    ) -> Slot {
        let mut slot = Slot::default();
        if !verdict.is_granted() {
            return slot;
        }
        for (ask, status) in asks.iter().zip(verdict.each()) {
            let policy = self.policies.policy(ask.policy);
            if !policy.is_in_flight() || ask.cost == 0 {
                continue;
            }
            let claim = Claim {
                policies: Arc::clone(&self.policies),
                policy: ask.policy,
                key: ask.key.clone(),
                digest: self.digest(ask),
                stamp: status.stamp(),
                share: verdict.share(),
            };
            let until = status.ends_after().map(|lease| asked + lease);
            let keeper: Arc<dyn Keeper> = self.clone();
            let held = Arc::new(Held::new(keeper, claim, observers.clone(), until));
            if until.is_some() {
                self.renew_later(&held, asked);
            }
            slot.0.push(held);
        }
        slot
    }

    /// The releases that are on their way of what is asked.
    pub(crate) fn releasing(&self, asks: &[Ask]) -> Option<Releasing> {
        let in_flight = asks.iter().filter(|ask| self.policies.policy(ask.policy).is_in_flight());
        self.releases.on_their_way(in_flight.map(|ask| self.digest(ask)))
    }

    /// Hears of releases of what is asked by this process.
    pub(crate) fn listen(&self, ask: &Ask) -> Listener {
        self.releases.listen(self.digest(ask))
    }

    /// Notes that a slot is to be renewed, a part of its lease after it was `asked` for.
    fn renew_later(self: &Arc<Self>, held: &Arc<Held>, asked: Instant) {
        let mut renewals = self.renewals();
        renewals.slots += 1;
        let place = (asked + renewal_time(held), renewals.slots);
        if !held.stands_at(place) {
            return;
        }
        renewals.due.insert(place, Arc::downgrade(held));
        let starts = !renewals.is_running;
        if let (true, Ok(runtime)) = (starts, Handle::try_current()) {
            renewals.is_running = true;
            drop(renewals);
            runtime.spawn(Running(Some(Arc::clone(self))).run());
        }
    }

    /// Renews the slots that are due until the next look. `false` if there are no slots.
    fn renew_due(self: &Arc<Self>) -> bool {
        let now = timer_now();
        // Dropped after the lock, which the end of a slot needs.
        let mut found = Vec::new();
        let mut due = Vec::new();
        let mut renewals = self.renewals();
        if renewals.due.is_empty() {
            renewals.is_running = false;
            return false;
        }
        let later = renewals.due.split_off(&(now + self.pause, 0));
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
            // In a task of its own, so that a call without an answer holds up no other.
            tokio::spawn(Arc::clone(self).renew(due, now));
        }
        true
    }

    async fn renew(self: Arc<Self>, due: Vec<Arc<Held>>, sent: Instant) {
        let grants: Vec<Grant<'_>> = due.iter().map(|held| held.claim.grant()).collect();
        let renewals = self.store.renew(&grants).await.unwrap_or_else(NeverFails::never);
        for (held, renewal) in due.iter().zip(renewals) {
            held.end_renewal(renewal, sent + held.claim.policy().quota().window());
        }
    }

    /// Ends all slots that have a lease, and waits until the store has answered each release of
    /// this process.
    pub(crate) async fn give_back(&self) {
        let all: Vec<Arc<Held>> = self.renewals().due.values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|held| held.end());
        if let Some(releasing) = self.releases.all_on_their_way() {
            releasing.answered().await;
        }
    }
}

/// The time after which a slot is renewed.
fn renewal_time(held: &Held) -> Duration {
    held.claim.policy().quota().window() / RENEW_AFTER
}

impl Claim {
    fn grant(&self) -> Grant<'_> {
        Grant { policy: self.policy(), key: &self.key, units: 1, stamp: self.stamp, share: self.share }
    }
}

/// The task that renews slots, as long as there are any. `None` once there are none.
struct Running<S>(Option<Arc<Slots<S>>>);

impl<S: Store<Error: NeverFails>> Running<S> {
    async fn run(mut self) {
        while let Some(slots) = &self.0 {
            if slots.renew_due() {
                sleep(slots.pause).await;
            } else {
                self.0 = None;
            }
        }
    }
}

impl<S> Drop for Running<S> {
    /// If its runtime stops, the next claim starts another one.
    fn drop(&mut self) {
        if let Some(slots) = &self.0 {
            slots.renewals().is_running = false;
        }
    }
}

impl<S: Store<Error: NeverFails>> Keeper for Slots<S> {
    fn announce(&self, claim: &Claim) -> OnItsWay {
        self.releases.announce(claim.digest)
    }

    fn release(self: Arc<Self>, claim: &Claim, announced: OnItsWay, runtime: Option<&Handle>) {
        // A store may need the runtime's timers.
        let _entered = runtime.map(Handle::enter);
        if let (Reply::Later(release), Some(runtime)) = (self.store.refund(&[claim.grant()]), runtime) {
            runtime.spawn(async move {
                // A release that fails is lost, and the lease ends the slot.
                let _ = release.await;
                drop(announced);
            });
        }
    }

    fn forget(&self, place: Place) {
        self.renewals().due.remove(&place);
    }
}

impl<S> fmt::Debug for Slots<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("pause", &self.pause).finish_non_exhaustive()
    }
}
