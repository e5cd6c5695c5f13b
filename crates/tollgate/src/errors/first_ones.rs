//! Checks that only the first requests of a process pay for.

use std::sync::atomic::{AtomicI32, Ordering};

/// Tells the first requests of a process from the others, for which this costs one load.
pub(crate) struct FirstOnes(AtomicI32);

impl FirstOnes {
    pub(crate) const fn new(count: i32) -> FirstOnes {
        FirstOnes(AtomicI32::new(count))
    }

    /// Whether the request that asks is one of them.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0 && self.0.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_the_first() {
        let first = FirstOnes::new(3);
        assert_eq!((0..10).filter(|_| first.is_one()).count(), 3);
    }
}
