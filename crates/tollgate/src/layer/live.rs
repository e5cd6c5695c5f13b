//! The rules and options that apply now, which services share.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use super::shared::LayerShared;
use crate::limiter::RequestLimiter;
use crate::limiter::replacement::{LatestVersion, LiveRules};

pub(crate) struct Live<S> {
    current: ArcSwap<LayerShared<S>>,
    /// Wakes callers that wait by earlier rules.
    version: watch::Sender<u64>,
}

impl<S> Live<S> {
    pub(super) fn new(shared: LayerShared<S>) -> Live<S> {
        let version = watch::Sender::new(shared.version());
        Live { current: ArcSwap::from_pointee(shared), version }
    }

    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<LayerShared<S>>> {
        self.current.load()
    }

    pub(super) fn load_full(&self) -> Arc<LayerShared<S>> {
        self.current.load_full()
    }

    /// Puts `next` in the place of `earlier`, if that still applies. Returns whether it did.
    pub(super) fn replace(&self, earlier: &Arc<LayerShared<S>>, next: LayerShared<S>) -> bool {
        let version = next.version();
        let found = self.current.compare_and_swap(earlier, Arc::new(next));
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

    pub(super) fn version(&self) -> LatestVersion {
        LatestVersion::of(&self.version)
    }
}

impl<S: Clone + Send + Sync> LiveRules<RequestLimiter<S>> for Live<S> {
    fn latest(&self) -> RequestLimiter<S> {
        self.load().deref().limiter.clone()
    }

    fn latest_version(&self) -> LatestVersion {
        self.version()
    }
}
