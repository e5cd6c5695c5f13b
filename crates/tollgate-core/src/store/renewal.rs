//! Whether a slot is still held.

/// What became of a slot: see [`Store::renew`](crate::Store::renew).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// It is held for another time to live.
    Held,
    /// Its time to live has ended, and others hold all slots.
    Lost,
    /// The store failed. The slot keeps the time to live that it had.
    Unanswered,
}
