//! What acts for a plan where no request waits: how grants end, and what follows a denial.

use std::sync::Arc;

use crate::never_fails::ColdStore;
use crate::observe::Observers;
use crate::plan::Plan;

/// A store without its type, the plan by which it was asked, and those who see what happens.
#[derive(Clone)]
pub(crate) struct Cold {
    pub(crate) store: ColdStore,
    pub(crate) plan: Arc<Plan>,
    pub(crate) observers: Observers,
}
