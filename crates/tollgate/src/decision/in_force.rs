//! A plan in force: how its grants end, and what follows its denials.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::decision::observe::Observers;
use crate::plan::Plan;
use crate::store::ColdStore;
use crate::time::ending::{EndPhase, Home, LONGEST_END, within};
use crate::time::under_way::UnderWay;

/// A plan by which requests are decided, those who see the decisions, and the store for what no
/// request waits for.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) plan: Arc<Plan>,
    pub(crate) observers: Observers,
    pub(crate) store: ColdStore,
    /// What ends grants, and goes on without a caller that waits for it.
    pub(crate) under_way: UnderWay,
}

impl InForce {
    /// Begins what goes on if its caller leaves. A limiter that closes waits for it.
    pub(crate) fn end<F>(&self, home: &Home, end: impl FnOnce() -> F) -> EndPhase<()>
    where
        F: Future<Output = Result<(), Infallible>> + Send + 'static,
    {
        let begun = self.under_way.begin();
        home.end(|| {
            let end = within(LONGEST_END, end());
            async move {
                let _begun = begun;
                let _ = end.await;
            }
        })
    }
}

impl fmt::Debug for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InForce { plan, observers, .. } = self;
        f.debug_struct("InForce").field("plan", plan).field("observers", observers).finish_non_exhaustive()
    }
}
