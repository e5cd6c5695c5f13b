//! Which decisions are counted.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    /// The state of a xorshift generator (G. Marsaglia, "Xorshift RNGs", 2003). 0 before its start.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Returns `true` once in `n` times, at random, so that no pattern of requests evades it.
#[inline]
pub(super) fn is_one_in(n: u32) -> bool {
    let mut state = STATE.get();
    if state == 0 {
        state = RandomState::new().hash_one(n) | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    ((state >> 32) * u64::from(n)) >> 32 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_n_is_counted() {
        for n in [2_u32, 8, 100] {
            let hits: u32 = (0..1_000_000).map(|_| u32::from(is_one_in(n))).sum();
            let due = 1_000_000 / n;
            // Seven standard deviations.
            assert!(hits.abs_diff(due) <= 7 * due.isqrt(), "{hits} of {due}");
        }
    }
}
