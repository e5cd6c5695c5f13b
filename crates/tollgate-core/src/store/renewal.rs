//! Whether a slot is still held.

use std::sync::Arc;

/// What became of a slot: see [`Store::renew`](crate::Store::renew).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// It is held for another time to live.
    Held,
    /// Its time to live has ended, and others hold all slots.
    Lost,
    /// The store, or the node that has its key, failed. The slot keeps the time to live that it
    /// had.
    Unanswered,
}

/// Hears of the grant at that place what became of its slot. It does not block.
pub type RenewalReport = Arc<dyn Fn(usize, Renewal) + Send + Sync>;
