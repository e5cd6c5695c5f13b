//! Brings corrections of charges to their end, whether or not a caller waits for them.

use std::future::Future;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_core::{Reply, Settled, Store, Times};

use super::reservation::Reservation;
use crate::decision::{Denial, GrantStamp, InForce, Report};
use crate::plan::{Ask, PolicyRef};
use crate::time::ending::{EndPhase, Home, LONGEST_END, within};

impl InForce {
    /// Charges more units. Other rules have decided about the request before. `None` if a failure
    /// policy let them pass.
    pub(super) async fn extend(&self, ask: Ask) -> Result<Option<GrantStamp>, Denial> {
        let asks = slice::from_ref(&ask);
        // At once: nothing waits for a place in the queue of a leaky bucket.
        let reply = self.plan.checks(asks, Some(Duration::ZERO), |set| self.store.acquire(set, Times::ONCE));
        let since = if let Reply::Later(_) = reply { self.observers.now() } else { None };
        let Ok(verdict) = reply.wait().await;
        self.observers.verdict(&self.plan, asks, &verdict, since);
        if !verdict.is_granted() {
            return Err(Denial::of(Report::new(&self.plan, [ask.policy], verdict)));
        }
        Ok(GrantStamp::of(&verdict, 0))
    }

    /// Corrects the grants of a reservation. A charge of more than was granted takes as long as the
    /// store does.
    fn settle(
        &self,
        ask: &Ask,
        reservation: &Reservation,
        total: u64,
    ) -> impl Future<Output = Settled> + Send + use<> {
        let (grants, rest) = reservation.correction(self.plan.policy(&ask.policy), &ask.key, total);
        let granted = grants.iter().fold(0_u64, |sum, grant| sum.saturating_add(grant.units));
        let settled = (!grants.is_empty()).then(|| match rest > granted {
            // No request waits for it, and what a stall makes late would be forgiven.
            true => self.store.with_deadline(None).settle(&grants, rest),
            false => self.store.settle(&grants, rest),
        });
        async move {
            match settled {
                Some(settled) => {
                    let Ok(settled) = settled.await;
                    settled
                }
                None => Settled::default(),
            }
        }
    }

    fn show_settled(&self, policy: &PolicyRef, settled: Settled) {
        self.observers.settled(&self.plan, policy, settled);
    }
}

/// A correction that goes on.
pub(crate) type CorrectionTask = JoinHandle<Settled>;

/// A correction that has been started.
pub(super) struct Correction {
    ending: EndPhase<Settled>,
    /// How long a caller waits for it, if there is a limit.
    limit: Option<Duration>,
    /// What the caller gets without an answer within the limit.
    unanswered: Settled,
}

/// Starts to correct a reservation to `total`.
pub(super) fn start(
    in_force: &Arc<InForce>,
    ask: &Ask,
    reservation: Reservation,
    total: u64,
    home: &Home,
) -> Correction {
    if ask.key.is_empty() {
        return Correction::done(Settled { forgiven: total, ..Settled::default() });
    }
    // What is less than the estimate ends with the wait of the store.
    let limit = in_force.store.wait_limit().filter(|_| total > reservation.reserved());
    let mut open = Unsettled::new(in_force, ask, reservation, total);
    let unanswered = open.unanswered();
    let begun = in_force.under_way.begin();
    let ending = home.end(|| async move {
        let _begun = begun;
        // Dropped after that, it shows that it was not answered.
        within(LONGEST_END, open.finish()).await.unwrap_or(unanswered)
    });
    Correction { ending, limit, unanswered }
}

/// Leaves a reservation as it is, and shows that to observers.
pub(super) fn keep(in_force: &Arc<InForce>, ask: &Ask, reservation: Reservation) {
    if !ask.key.is_empty() {
        let total = reservation.reserved();
        // Shown as what is not answered: nothing is sent, and nothing is unknown.
        drop(Unsettled::new(in_force, ask, reservation, total));
    }
}

impl Correction {
    fn done(settled: Settled) -> Correction {
        Correction { ending: EndPhase::Done(settled), limit: None, unanswered: Settled::default() }
    }

    pub(super) async fn finish(self) -> Settled {
        match (self.ending, self.limit) {
            (EndPhase::Done(settled), _) => settled,
            // It fails only if the runtime stops. Observers have heard of it then.
            (EndPhase::Task(task), Some(limit)) if Handle::try_current().is_ok() => {
                timeout(limit, task).await.map_or(self.unanswered, Result::unwrap_or_default)
            }
            (EndPhase::Task(task), _) => task.await.unwrap_or_default(),
            (EndPhase::Alone(future), _) => future.await,
        }
    }

    /// Lets it go on. Returns the task, if it is not done yet.
    pub(super) fn detach(self) -> Option<CorrectionTask> {
        match self.ending {
            EndPhase::Task(task) => Some(task),
            EndPhase::Done(_) | EndPhase::Alone(_) => None,
        }
    }
}

/// A reservation that is being settled. If this is dropped before the end, such as when its runtime
/// has stopped, observers hear that it was not answered.
struct Unsettled {
    in_force: Arc<InForce>,
    ask: Ask,
    reservation: Reservation,
    total: u64,
    is_done: bool,
}

impl Unsettled {
    fn new(in_force: &Arc<InForce>, ask: &Ask, reservation: Reservation, total: u64) -> Unsettled {
        Unsettled { in_force: Arc::clone(in_force), ask: ask.clone(), reservation, total, is_done: false }
    }

    async fn finish(&mut self) -> Settled {
        let Unsettled { in_force, ask, reservation, total, .. } = &*self;
        let corrected = in_force.settle(ask, reservation, *total).await;
        let settled = reservation.settled(*total, corrected);
        in_force.show_settled(&ask.policy, settled);
        self.is_done = true;
        settled
    }

    /// What becomes of it without an answer.
    fn unanswered(&self) -> Settled {
        let Unsettled { in_force, ask, reservation, total, .. } = self;
        let (grants, rest) = reservation.correction(in_force.plan.policy(&ask.policy), &ask.key, *total);
        reservation.settled(*total, Settled::unanswered(&grants, rest))
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if !self.is_done {
            self.in_force.show_settled(&self.ask.policy, self.unanswered());
        }
    }
}
