//! Whether a block was started.

use crate::store::settled::Settled;

/// What became of a block: see [`Store::block`](crate::Store::block).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockStart {
    /// The key is blocked from now on.
    Started,
    /// The key was blocked already. That block ends when it would have.
    GoesOn,
    /// The store had no room for it, failed, or did not answer.
    Dropped,
}

impl BlockStart {
    /// That of one unit which no grant has paid. What is charged while a block goes on is debt.
    pub(crate) fn of(settled: Settled) -> BlockStart {
        match settled {
            Settled { forgiven: 1.., .. } | Settled { unknown: 1.., .. } => BlockStart::Dropped,
            Settled { charged, debt, .. } if charged > debt => BlockStart::Started,
            _ => BlockStart::GoesOn,
        }
    }
}
