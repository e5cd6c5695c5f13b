//! One slot that a request holds, until it is released or lost.

use std::mem;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{Grant, Policy, Renewal};

use super::releases::OnItsWay;
use super::sync::{Mutex, MutexGuard};
use super::timer_now;
use crate::decision::GrantStamp;
use crate::decision::observe::Observers;
use crate::plan::{Ask, Plan};
use crate::table::digest::Digest;
use crate::time::ending::Home;

/// What identifies a slot in its store.
pub(super) struct Claim {
    pub(super) plan: Arc<Plan>,
    pub(super) ask: Ask,
    /// Of the policy and the key.
    pub(super) digest: Digest,
    pub(super) stamp: GrantStamp,
}

impl Claim {
    pub(super) fn policy(&self) -> &Policy {
        self.plan.policy(&self.ask.policy)
    }

    /// How long its rule lets a request hold it.
    pub(super) fn held_at_most(&self) -> Option<Duration> {
        self.plan.rule(self.plan.rule_of(&self.ask.policy)).held()
    }

    pub(super) fn grant(&self) -> Grant<'_> {
        self.stamp.grant(self.policy(), &self.ask.key, 1)
    }
}

/// Where slots are released and renewed, without the type of the store.
pub(super) trait Keeper: Send + Sync {
    /// Says that a slot will be released.
    fn announce(&self, claim: &Claim) -> OnItsWay;

    /// Sends the release of a slot that was announced.
    fn release(self: Arc<Self>, claim: &Claim, announced: OnItsWay, home: &Home);

    /// Forgets to renew the slot at this place.
    fn forget(&self, place: RenewalPlace);
}

/// When a slot is renewed, and the number that tells it from others.
pub(super) type RenewalPlace = (Instant, u64);

/// A slot. It is released when this is dropped, unless it was before.
pub(super) struct HeldSlot {
    keeper: Arc<dyn Keeper>,
    pub(super) claim: Claim,
    /// Those that have seen the grant.
    observers: OnceLock<Observers>,
    hold: Mutex<Hold>,
    /// Notified when it is lost or ends.
    ended: Notify,
    home: Home,
}

struct Hold {
    phase: HoldPhase,
    /// When its time to live ends. `None` if the store keeps it until it is released.
    until: Option<Instant>,
    /// Where the keeper finds it to renew it.
    place: Option<RenewalPlace>,
    /// Ends it if it is held for too long.
    timer: Option<AbortHandle>,
}

enum HoldPhase {
    Held,
    /// A renewal is on its way.
    Renewing,
    /// It has ended, and a renewal is on its way. It is released after that, or the renewal might
    /// take it again.
    EndedRenewing(OnItsWay),
    Ended,
}

impl HeldSlot {
    /// A slot that was granted. `until` is when its time to live ends.
    pub(super) fn new(keeper: Arc<dyn Keeper>, claim: Claim, until: Option<Instant>) -> HeldSlot {
        let hold = Hold { phase: HoldPhase::Held, until, place: None, timer: None };
        let observers = OnceLock::new();
        HeldSlot {
            keeper,
            claim,
            observers,
            hold: Mutex::new(hold),
            ended: Notify::new(),
            home: Home::here(),
        }
    }

    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.hold().is_lost()
    }

    /// Waits until it is lost or has ended.
    pub(super) async fn lost(&self) {
        loop {
            let ended = self.ended.notified();
            let until = {
                let hold = self.hold();
                if hold.is_lost() {
                    return;
                }
                hold.until
            };
            match until {
                // A renewal may have moved the end meanwhile.
                Some(until) => drop(timeout_at(until, ended).await),
                None => ended.await,
            }
        }
    }

    /// Ends it now: the request has ended.
    pub(super) fn end(&self) {
        let (announced, place, timer) = {
            let mut hold = self.hold();
            if hold.has_ended() {
                return;
            }
            let announced = self.keeper.announce(&self.claim);
            let announced = match hold.phase {
                HoldPhase::Renewing => {
                    hold.phase = HoldPhase::EndedRenewing(announced);
                    None
                }
                _ => {
                    hold.phase = HoldPhase::Ended;
                    Some(announced)
                }
            };
            (announced, hold.place.take(), hold.timer.take())
        };
        if let Some(place) = place {
            self.keeper.forget(place);
        }
        if let Some(timer) = timer {
            timer.abort();
        }
        self.ended.notify_waiters();
        if let Some(announced) = announced {
            self.release(announced);
        }
        // After the release, which no slow observer may hold up.
        if let Some(observers) = self.observers.get() {
            observers.released(&self.claim.plan, &self.claim.ask.policy);
        }
    }

    /// Shows its end to observers that have seen its grant.
    pub(super) fn seen_by(&self, observers: &Observers) {
        let _ = self.observers.set(observers.clone());
    }

    /// Says that it will be released soon.
    pub(super) fn announce(&self) -> OnItsWay {
        self.keeper.announce(&self.claim)
    }

    /// Ends it after a time, if it is still held then.
    pub(super) fn end_after(self: &Arc<HeldSlot>, time: Duration) {
        let Some(runtime) = self.home.runtime() else { return };
        let held = Arc::downgrade(self);
        let timer = runtime.spawn(async move {
            sleep(time).await;
            if let Some(held) = held.upgrade() {
                held.end();
            }
        });
        self.hold().timer = Some(timer.abort_handle());
    }

    /// Begins a renewal, if the slot is held and none is on its way. The next is due at that place;
    /// returns whether it is, and whether this one begins.
    pub(super) fn begin_renewal(&self, next: RenewalPlace) -> (bool, bool) {
        let mut hold = self.hold();
        if hold.is_lost() {
            hold.place = None;
            return (false, false);
        }
        hold.place = Some(next);
        let begins = matches!(hold.phase, HoldPhase::Held);
        hold.phase = HoldPhase::Renewing;
        (true, begins)
    }

    /// Says what became of a renewal, and until when it holds the slot.
    pub(super) fn end_renewal(&self, renewal: Renewal, until: Instant) {
        let mut hold = self.hold();
        match mem::replace(&mut hold.phase, HoldPhase::Ended) {
            HoldPhase::EndedRenewing(announced) => {
                drop(hold);
                return self.release(announced);
            }
            _ => hold.phase = HoldPhase::Held,
        }
        match renewal {
            // What was lost by the clock meanwhile stays lost, since a holder may know it.
            Renewal::Held if !hold.is_lost() => hold.until = Some(until),
            Renewal::Lost => hold.until = Some(timer_now()),
            _ => {}
        }
        let is_lost = hold.is_lost();
        drop(hold);
        if is_lost {
            self.ended.notify_waiters();
        }
    }

    /// Notes where it is found for the next renewal. `false` if it has ended.
    pub(super) fn stands_at(&self, place: RenewalPlace) -> bool {
        let mut hold = self.hold();
        let is_held = matches!(hold.phase, HoldPhase::Held);
        if is_held {
            hold.place = Some(place);
        }
        is_held
    }

    fn release(&self, announced: OnItsWay) {
        Arc::clone(&self.keeper).release(&self.claim, announced, &self.home);
    }
}

impl Hold {
    fn has_ended(&self) -> bool {
        matches!(self.phase, HoldPhase::Ended | HoldPhase::EndedRenewing(_))
    }

    fn is_lost(&self) -> bool {
        self.has_ended() || self.until.is_some_and(|until| timer_now() >= until)
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.end();
    }
}
