//! The rules that apply now, and those that replace them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;
use tollgate_core::{Clock, Reply, Store};

use super::changes::RuleChanges;
use super::decider::Decider;
use super::made_per_request::Decided;
use super::permit::Permit;
use super::queue_place::after_delay;
use super::waiting::Waited;
use crate::decision::{Denial, InForce};
use crate::errors::SetupError;
use crate::plan::{Asks, Plan, Switch};
use crate::rule::IntoRules;
use crate::store::NeverFails;

/// The decider that applies now. Clones of a limiter share it, and services of a layer.
#[derive(Debug)]
pub(crate) struct Live<S> {
    current: ArcSwap<Decider<S>>,
    /// Wakes callers that wait by earlier rules.
    version: watch::Sender<u64>,
    decided: Decided,
}

impl<S> Live<S> {
    pub(crate) fn new(decider: Decider<S>) -> Arc<Live<S>> {
        let version = watch::Sender::new(decider.plan().version());
        Arc::new(Live { current: ArcSwap::from_pointee(decider), version, decided: Decided::default() })
    }

    /// The decider for a request.
    #[inline]
    pub(crate) fn for_request(&self) -> Guard<Arc<Decider<S>>> {
        self.decided.one_more();
        self.load()
    }

    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Decider<S>>> {
        self.current.load()
    }

    pub(crate) fn load_full(&self) -> Arc<Decider<S>> {
        self.current.load_full()
    }

    pub(crate) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.load().in_force)
    }

    pub(crate) fn version(&self) -> u64 {
        self.load().plan().version()
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.load().plan().switch() == Switch::On
    }

    /// Switches the rules on or off.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.switch(if enabled { Switch::On } else { Switch::Off });
    }

    /// Switches the rules, unless the process stops.
    pub(super) fn switch(&self, switch: Switch) {
        loop {
            let earlier = self.load_full();
            let now = earlier.plan().switch();
            if now == switch
                || now == Switch::Stopping
                || self.swap(&earlier, Arc::new(earlier.switched(switch)))
            {
                return;
            }
        }
    }

    /// Puts `next` in the place of `earlier`, if that still applies. Returns whether it did.
    fn swap(&self, earlier: &Arc<Decider<S>>, next: Arc<Decider<S>>) -> bool {
        let version = next.plan().version();
        let found = self.current.compare_and_swap(earlier, next);
        let is_replaced = Arc::ptr_eq(&found, earlier);
        if is_replaced {
            // Two threads may arrive here in another order.
            self.version.send_if_modified(|latest| {
                let is_later = version > *latest;
                *latest = version.max(*latest);
                is_later
            });
        }
        is_replaced
    }

    /// Whether rules of this version were replaced.
    pub(super) fn is_after(&self, version: u64) -> bool {
        *self.version.borrow() > version
    }

    /// Does some work until rules of this version are replaced. `None` if they were.
    pub(super) async fn unless_after<T>(&self, version: u64, work: impl Future<Output = T>) -> Option<T> {
        let mut latest = self.version.subscribe();
        let (mut work, mut later) = (pin!(work), pin!(latest.wait_for(|latest| *latest > version)));
        poll_fn(|cx| {
            if later.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

impl<S: Store<Error: NeverFails>> Live<S> {
    /// The permit for what `asks` makes by the rules that apply, and what decided. If they are
    /// replaced while the caller waits, those that apply then decide. With `patience` it waits
    /// until they allow it, otherwise for slots only.
    pub(crate) async fn permit<E>(
        self: &Arc<Self>,
        asks: impl Fn(&Decider<S>) -> Result<Result<Asks, Denial>, E>,
        patience: Option<Duration>,
    ) -> Result<Result<(Arc<Decider<S>>, Permit), Denial>, E> {
        let mut place = None;
        let (decider, asks, admission) = loop {
            let decider = Guard::into_inner(self.for_request());
            let asks = match decider.shown(asks(&decider)?) {
                Ok(asks) => asks,
                Err(denial) => return Ok(Err(denial)),
            };
            let asked = match decider.admit(&asks, patience, None, place, self) {
                Reply::Now(admission) => Waited::Decided(admission),
                Reply::Later(asking) => asking.await,
            };
            match asked {
                Waited::Decided(admission) => break (decider, asks, admission),
                Waited::Refused(denial) => {
                    decider.count(&denial, &asks);
                    return Ok(Err(denial));
                }
                Waited::Replaced((kept, _)) => place = Some(kept),
            }
        };
        // Of a caller that waits, observers have seen each answer.
        if patience.is_none() {
            decider.show(&asks, &admission);
        }
        let permit = match decider.permit(asks, admission) {
            Ok(permit) if patience.is_some() => after_delay(permit).await,
            Ok(permit) => permit,
            Err(denial) => return Ok(Err(denial)),
        };
        Ok(Ok((decider, permit)))
    }

    /// Replaces the rules. Two threads that do so at once follow each other.
    pub(crate) fn replace(&self, rules: impl IntoRules) -> Result<RuleChanges, SetupError> {
        let (plan, now) = (Plan::try_new(rules)?, Clock::system().now());
        loop {
            let earlier = self.load_full();
            let next = Arc::new(earlier.replaced(plan.clone())?);
            let version = next.plan().version();
            let changes = RuleChanges::between(version, earlier.plan().rules(), next.plan().rules(), now);
            if self.swap(&earlier, next) {
                return Ok(changes);
            }
        }
    }
}
