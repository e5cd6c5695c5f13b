//! Whether limiters are made for each request.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// How many requests a limiter has decided: none, one, or more. When it is dropped, the log says
/// once if it is the last of many in a row that decided one.
#[derive(Debug, Default)]
pub(super) struct Decided(AtomicU8);

/// How many limiters in a row decided one request and were dropped.
static IN_A_ROW: AtomicU32 = AtomicU32::new(0);

/// So many in a row are not by chance.
const MANY: u32 = 1_000;

impl Decided {
    /// Notes a request. Costs one load after the second.
    #[inline]
    pub(super) fn one_more(&self) {
        let so_far = self.0.load(Relaxed);
        if so_far < 2 {
            self.0.store(so_far + 1, Relaxed);
        }
    }
}

impl Drop for Decided {
    fn drop(&mut self) {
        let is_many = match *self.0.get_mut() {
            0 => false,
            1 => IN_A_ROW.fetch_add(1, Relaxed) + 1 == MANY,
            _ => {
                IN_A_ROW.store(0, Relaxed);
                false
            }
        };
        if is_many {
            log();
        }
    }
}

#[cold]
fn log() {
    #[cfg(feature = "tracing")]
    if tollgate_core::LogCode::MadePerRequest.is_first() {
        tracing::warn!(
            code = %tollgate_core::LogCode::MadePerRequest,
            "{MANY} limiters in a row decided one request each and were dropped: make the layer or limiter once, and \
             clone it, since a new one has forgotten what was used"
        );
    }
}
