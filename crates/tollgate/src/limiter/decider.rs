//! What decides: an engine, the plan in force, and how a layer answers.

use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Key, Policy, Store, Timestamp, Verdict};

use super::engine::Engine;
use super::permit::Permit;
use super::queue_place::once_due;
use super::wait_queue::WaitQueues;
use crate::answer::options::AnswerOptions;
#[cfg(feature = "metrics")]
use crate::decision::observe::metrics::{LayerLimits, Metrics};
use crate::decision::observe::{Decision, Observe, Observers};
use crate::decision::{Denial, InForce, Report};
use crate::errors::SetupError;
use crate::extract::Head;
use crate::memory::MemoryStore;
use crate::plan::{Ask, Asks, Plan, Switch};
use crate::store::NeverFails;
use crate::time::ending::Home;

/// An engine, the plan by which it decides, and how a layer answers. A request that waits shares
/// this with others, and nothing else: with two such things it costs 1.1 × (`peers redis`, hot).
#[derive(Debug)]
pub(crate) struct Decider<S> {
    pub(crate) engine: Arc<Engine<S>>,
    pub(crate) in_force: Arc<InForce>,
    pub(crate) answers: Arc<AnswerOptions>,
}

impl<S> Clone for Decider<S> {
    fn clone(&self) -> Decider<S> {
        let Decider { engine, in_force, answers } = self;
        Decider { engine: Arc::clone(engine), in_force: Arc::clone(in_force), answers: Arc::clone(answers) }
    }
}

impl Decider<MemoryStore> {
    pub(super) fn new(plan: Plan) -> Decider<MemoryStore> {
        let engine = Engine::new(MemoryStore::new(), true);
        let in_force = engine.in_force(Arc::new(plan), Observers::default());
        Decider { engine: Arc::new(engine), in_force, answers: Arc::default() }
    }
}

impl<S> Decider<S> {
    #[inline]
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.in_force.plan
    }

    pub(super) fn observers(&self) -> &Observers {
        &self.in_force.observers
    }

    pub(crate) fn try_store<T: Store<Error: NeverFails>>(&self, store: T) -> Result<Decider<T>, SetupError> {
        let engine = Engine::new(store, self.engine.waits_for_store);
        let plan = self.plan().for_other_store();
        engine.supports(&plan)?;
        let in_force = engine.in_force(plan, self.observers().clone());
        Ok(Decider { engine: Arc::new(engine), in_force, answers: Arc::clone(&self.answers) })
    }

    pub(crate) fn observe(&self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> Decider<S> {
        let observe: Arc<Observe> = Arc::new(observe);
        self.by(Arc::clone(self.plan()), self.observers().and(self.plan(), move |_| Arc::clone(&observe)))
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn metrics(&self) -> Decider<S> {
        let limits = LayerLimits::default();
        let observers = self.observers().and(self.plan(), move |plan| {
            let metrics = Metrics::new(plan, &limits);
            Arc::new(move |decision: &Decision<'_>| metrics.record(decision))
        });
        self.by(Arc::clone(self.plan()), observers)
    }

    /// The same decider, which answers otherwise.
    pub(crate) fn answering(&self, change: impl FnOnce(&mut AnswerOptions)) -> Decider<S> {
        let mut answers = AnswerOptions::clone(&self.answers);
        change(&mut answers);
        Decider { answers: Arc::new(answers), ..self.clone() }
    }

    pub(super) fn wait_for_store(&self, wait: bool) -> Decider<S>
    where
        S: Clone,
    {
        let engine = Engine::clone(&self.engine);
        let engine = Engine { queues: WaitQueues::new(), waits_for_store: wait, ..engine };
        Decider { engine: Arc::new(engine), ..self.clone() }
    }

    /// The same rules, switched otherwise.
    pub(super) fn switched(&self, switch: Switch) -> Decider<S> {
        self.by(Arc::new(self.plan().switched(switch)), self.observers().clone())
    }

    /// The same engine, by this plan.
    fn by(&self, plan: Arc<Plan>, observers: Observers) -> Decider<S> {
        Decider { in_force: self.engine.in_force(plan, observers), ..self.clone() }
    }

    /// The time now, if there are observers, for a request that begins to wait.
    pub(super) fn waits_since(&self) -> Option<Timestamp> {
        self.observers().now()
    }

    /// Shows observers which rule refused a request without asking a store, if one did.
    pub(crate) fn shown(&self, asks: Result<Asks, Denial>) -> Result<Asks, Denial> {
        asks.inspect_err(|denial| {
            if let Some(policy) = denial.report().first() {
                self.observers().refused(self.plan(), self.plan().rule_of(policy), denial.reason());
            }
        })
    }

    pub(crate) fn report(&self, asks: &[Ask], verdict: &Verdict) -> Report {
        Report::new(self.plan(), asks.iter().map(|ask| ask.policy.clone()), verdict.clone())
    }
}

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// The same decider by the plan that replaces its own.
    pub(super) fn replaced(&self, plan: Plan) -> Result<Decider<S>, SetupError> {
        let plan = Arc::new(plan.after(self.plan()));
        // Before observers and metrics change.
        self.engine.supports(&plan)?;
        let observers = self.observers().of(&plan);
        Ok(self.by(plan, observers))
    }

    /// Does what follows a grant, and changes nothing of it.
    #[inline]
    pub(crate) fn after_grant(&self, head: &Head<'_>) {
        if self.plan().has_shadow() {
            self.ask_in_shadow(head);
        }
    }

    /// Counts a denial that a caller gets, for blocks.
    pub(crate) fn count(&self, denial: &Denial, asks: &[Ask]) {
        if self.plan().needs().blocks {
            self.engine.denials.note(|| Arc::clone(&self.in_force), denial, asks);
        }
    }

    /// The permit of a request that a leaky bucket delays.
    pub(crate) fn permit_once_due(
        &self,
        asks: &[Ask],
        verdict: &Verdict,
    ) -> impl Future<Output = Permit> + Send + use<S> {
        let (report, in_force) = (self.report(asks, verdict), Arc::clone(&self.in_force));
        once_due(Permit::new(report, asks.into(), in_force))
    }

    /// Forgets what a key has used. It goes on if the caller leaves.
    pub(super) async fn reset(&self, key: &Key) {
        if key.is_empty() {
            return;
        }
        let resets = [false, true].map(|in_shadow| {
            let policies: SmallVec<[&Policy; 4]> = self.plan().with_states(in_shadow).collect();
            let reset = || self.engine.cold_store(in_shadow).reset(key, &policies);
            (!policies.is_empty()).then(|| self.in_force.end(&Home::here(), reset))
        });
        for reset in resets.into_iter().flatten() {
            reset.finish().await;
        }
    }
}
