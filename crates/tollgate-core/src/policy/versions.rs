//! How far the state of a bucket may lie ahead of the clock, and whose it is then.

use crate::exact::Exact;
use crate::policy::{Algorithm, PolicyNumbers};
use crate::quota::MAX_SPAN_US;

/// A TAT further ahead than the most debt of a policy, and than this many windows, is taken for
/// that of a clock that ran ahead.
const MOST_WINDOWS: u64 = 1_024;

/// The same of a queue, which refuses until then if the clock has stepped back. Fewer, since queues
/// are shorter.
const MOST_WINDOWS_OF_A_QUEUE: u64 = 128;

/// # Versions of a bucket
///
/// Policies of one [scope](crate::Policy::scope) with another limit or burst are versions of one
/// bucket: after an edit, during a deployment, or as tiers. A [class](crate::Policy::leaving) and a
/// [policy with debt](PolicyNumbers::with_debt) are of the version that they are made of. The state
/// of a key is one TAT until a version finds it beyond its [reach](PolicyNumbers::reach), or makes
/// debt. Then it is a record with a TAT for each version, up to four.
///
/// - A version decides by its own TAT alone. It begins with a bucket used up, or with the TAT that
///   was there if that is within its reach.
/// - A grant is charged to all versions, to each by its own rate, up to a bucket used up.
/// - A refund goes to the version that granted the units. The others refill them.
/// - Once all buckets are full, or the only one is out of debt, the record is one TAT again.
/// - While four versions are in use, a fifth gets what one of them has left.
///
/// So versions admit together at most the sum of their bursts, plus what the fastest of them
/// refills. None waits for longer than its own full bucket. After a raise, a cost of c waits at
/// most as long as before, or c × T of the raised policy. A version that refills slowly may get
/// nothing while a faster one is used up.
///
/// A clock that ran ahead looks like another version, and costs a full bucket at most.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::algorithm::State;
/// use tollgate_core::{Policy, Quota, Times, Timestamp, Wait};
///
/// let now = Timestamp::from_micros(43_200_000_000);
/// let before = Policy::new("api", Quota::per_hour(10).burst(50));
/// let after = Policy::new("api", Quota::per_hour(600).burst(50));
/// let mut state = State::new(&before);
/// let look = state.look(&before, now);
/// state.charge(&before, now, look, 50);
/// // The old bucket is full again in five hours. The new one refills a unit in six seconds.
/// let look = state.look(&after, now);
/// let status = state.refuse(&after, now, look, 1, Times::ONCE);
/// assert_eq!(status.wait(), Wait::For(Duration::from_secs(6)));
/// ```
impl PolicyNumbers {
    /// The burst that names a version of a bucket, together with the limit: the capacity, without
    /// [debt](PolicyNumbers::with_debt) and of the base of a [class](crate::Policy::leaving).
    ///
    /// 0 if the policy has no versions: it decides by the latest TAT. So do leaky buckets, whose
    /// queue is real, and policies [of a scope](crate::Policy::from_scope).
    #[inline]
    pub fn version_burst(&self) -> u64 {
        self.version_burst
    }

    /// How far TAT may lie ahead of now before it belongs to another version: the [version's
    /// burst](PolicyNumbers::version_burst) × T. Without versions, a TAT beyond it comes from a
    /// clock that ran ahead, and is cut to the [horizon](PolicyNumbers::horizon). In microseconds
    /// and [parts](PolicyNumbers::parts) of one.
    #[inline]
    pub fn reach(&self) -> (u64, u32) {
        (self.reach.us, self.reach.frac)
    }

    #[inline]
    pub(crate) fn has_versions(&self) -> bool {
        self.version_burst > 0
    }

    /// Makes it of the version with this burst.
    pub(super) fn set_version(&mut self, burst: u64) {
        (self.version_burst, self.reach) = (burst, self.interval.times(burst));
    }

    /// Decides by the latest TAT, whatever version it is of.
    pub(super) fn forget_versions(&mut self) {
        let windows = match self.algorithm {
            Algorithm::LeakyBucket { .. } => MOST_WINDOWS_OF_A_QUEUE,
            _ => MOST_WINDOWS,
        };
        let windows = Exact::from_us(self.span_of(windows));
        (self.version_burst, self.reach) = (0, self.horizon.max(windows));
    }

    /// How far TAT of a version lies ahead at the most debt.
    pub(crate) fn most_owed(&self) -> Exact {
        let most = self.interval.add(self.reach, self.reach);
        if most.ceil() <= MAX_SPAN_US { most } else { self.reach }
    }

    /// A TAT further ahead than this is of no version, in microseconds.
    pub(crate) fn furthest(&self) -> u64 {
        self.most_owed().ceil().max(self.span_of(MOST_WINDOWS))
    }

    fn span_of(&self, windows: u64) -> u64 {
        self.quota.window_us().saturating_mul(windows).min(MAX_SPAN_US)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::Policy;
    use crate::quota::Quota;

    #[test]
    fn classes_and_debt_are_of_the_version_of_their_base() {
        let base = Policy::new("p", Quota::per_minute(60).burst(10));
        for policy in [base.leaving(4).unwrap(), base.numbers().with_debt().unwrap(), base.clone()] {
            assert_eq!((policy.numbers().version_burst(), policy.numbers().reach()), (10, (10_000_000, 0)));
        }
        let class_of_class = base.leaving(4).unwrap().leaving(5).unwrap();
        assert_eq!((class_of_class.capacity(), class_of_class.numbers().version_burst()), (1, 10));
    }

    #[test]
    fn a_state_is_foreign_beyond_1024_windows_and_the_most_debt() {
        let small = Policy::new("p", Quota::per_minute(60).burst(10));
        assert_eq!(small.numbers().furthest(), 1_024 * 60_000_000);
        let reaches_further = Policy::new("p", Quota::per_minute(1).burst(2_000));
        assert_eq!(reaches_further.numbers().furthest(), 4_000 * 60_000_000, "as much debt as the burst");
        let longest = Policy::new("p", Quota::new(1, Duration::from_secs(366 * 86_400)));
        assert!(longest.numbers().furthest() <= 1 << 52, "a TAT stays an exact double");
    }

    #[test]
    fn a_queue_has_no_versions() {
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
        let queue = Policy::new("p", Quota::per_minute(60)).with_algorithm(queue);
        assert_eq!((queue.numbers().version_burst(), queue.numbers().reach()), (0, (128 * 60_000_000, 0)));
        assert_eq!(queue.leaving(1).unwrap_err(), crate::PolicyError::NothingLeft);
    }
}
