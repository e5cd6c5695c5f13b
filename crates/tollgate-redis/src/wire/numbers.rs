//! Numbers sent to a script and returned by it, as Lua's doubles in one binary string. Many strings
//! would cost both sides more.

use std::time::Duration;

/// Integers up to 2^53, as doubles.
pub(crate) struct Doubles(Vec<u8>);

impl Doubles {
    /// Has room for the numbers of most calls.
    pub(crate) fn new() -> Doubles {
        Doubles(Vec::with_capacity(32 * size_of::<f64>()))
    }

    pub(crate) fn push(&mut self, number: u64) {
        // Exact: a policy with larger numbers cannot be made.
        let double = number as f64;
        self.0.extend_from_slice(&double.to_le_bytes());
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The integers in an answer.
pub(crate) fn read(answer: &[u8]) -> impl Iterator<Item = i64> {
    answer.chunks_exact(8).map(|bytes| {
        let double = f64::from_le_bytes(bytes.try_into().unwrap_or_default());
        #[expect(
            clippy::cast_possible_truncation,
            reason = "scripts return integers of at most 2^53 in magnitude; others saturate"
        )]
        let number = double as i64;
        number
    })
}

/// A hundred years, which every server accepts.
const MOST_MILLIS: u64 = 100 * 366 * 86_400_000;

/// How long a key lives, in milliseconds, as every server accepts it.
pub(crate) fn life_in_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, MOST_MILLIS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_up_to_2_to_the_53rd_keep_every_digit() {
        let numbers = [0, 1, 1_767_225_600_123_457, 9_007_199_254_740_991, 1 << 53];
        let mut sent = Doubles::new();
        numbers.iter().for_each(|number| sent.push(*number));
        assert!(read(sent.as_bytes()).eq(numbers.map(u64::cast_signed)));
        assert_eq!(read(&(-1.0_f64).to_le_bytes()).collect::<Vec<_>>(), [-1]);
        assert_eq!(read(&[1, 2, 3]).count(), 0);
        assert_eq!(read(&f64::NAN.to_le_bytes()).collect::<Vec<_>>(), [0]);
    }
}
