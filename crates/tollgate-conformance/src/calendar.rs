//! Windows of many lengths, for the tests of [`Algorithm::CalendarWindow`].

use tollgate_core::{Algorithm, Boundaries};

/// Windows of 10 seconds for half a day from each start of the [suite](crate::Suite) on. Between
/// them, windows of any length up to 101 days. At the end of time, windows of a microsecond.
pub const CALENDAR_WINDOW: Algorithm = Algorithm::CalendarWindow { boundaries: Boundaries::new(&TABLE) };

/// The same windows, 4 seconds later.
pub(crate) const LATER_CALENDAR_WINDOW: Algorithm =
    Algorithm::CalendarWindow { boundaries: Boundaries::new(&LATER) };

const WINDOWS: usize = 1 << 15;

static TABLE: [u64; WINDOWS] = table(0);

static LATER: [u64; WINDOWS] = table(4_000_000);

const SHORT_US: u64 = 10_000_000;

/// The times from which on windows are short, and until when.
const SHORT: [(u64, u64); 3] = {
    let half_a_day = 43_200_000_000;
    let last = ((1 << 52) - 100_000_000_000_001) / SHORT_US * SHORT_US;
    [(0, half_a_day), (1_767_225_600_000_000, 1_767_225_600_000_000 + half_a_day), (last, last + half_a_day)]
};

const fn table(later: u64) -> [u64; WINDOWS] {
    let (mut table, mut at, mut time) = ([0; WINDOWS], 1, SHORT_US);
    table[0] = later;
    while at < WINDOWS {
        // Up to the end of time.
        table[at] = if time < (1 << 52) - later { time + later } else { table[at - 1] + 1 };
        time = next(time, at as u64);
        at += 1;
    }
    table
}

const fn next(time: u64, number: u64) -> u64 {
    // As likely to be of any order of magnitude; the multiplier is that of Fibonacci hashing.
    let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = time + 1 + (hash >> 21 >> (hash % 20));
    let mut at = 0;
    while at < SHORT.len() {
        let (from, to) = SHORT[at];
        if from <= time && time < to {
            return time + SHORT_US;
        }
        if time < from && from < next {
            next = from;
        }
        at += 1;
    }
    // No time is left for longer ones.
    if next > 1 << 52 { time + 1 } else { next }
}
