//! What the store said when it denied a key, and what it denies too.

use std::time::Duration;

use tollgate_core::{Check, Policy, Quota, Stamp, Status, Timestamp, Wait};

/// A denial is confirmed at the store after this time, so that changes by other processes are seen.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// If a confirmation brings no answer for this long, another request asks.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What the store said of one policy and key when it denied a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownDenial {
    terms: DeniedTerms,
    /// `None` after a refund or a reset. Denials that were asked for before that do not count.
    said: Option<Said>,
    /// When the store was asked, and when it answered. Its decision was between the two.
    asked: Timestamp,
    answered: Timestamp,
    /// When the store is asked again.
    confirm: Timestamp,
}

/// What was denied, and what it denies too.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeniedTerms {
    quota: Quota,
    /// A class may have the quota of a tier, and is of another version of the bucket.
    headroom: u64,
    /// How long the caller would have waited in the queue of a leaky bucket. A denial says nothing
    /// about callers that wait for longer.
    max_wait: Duration,
    /// Larger costs are denied too, for at least as long. The sum, if a set names the policy and
    /// key more than once.
    pub(super) cost: u64,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    wait: Wait,
    remaining: u64,
    reset_after: Duration,
}

impl DeniedTerms {
    pub(super) fn of(check: &Check<'_>) -> DeniedTerms {
        let Check { policy, cost, .. } = *check;
        let (quota, headroom) = (policy.quota(), policy.numbers().headroom());
        DeniedTerms { quota, headroom, max_wait: policy.longest_wait(), cost }
    }

    /// Whether what the store said applies to a request on these terms too.
    #[inline]
    fn hold_for(&self, asked: &DeniedTerms) -> bool {
        (self.quota, self.headroom) == (asked.quota, asked.headroom) && self.max_wait >= asked.max_wait
    }
}

impl KnownDenial {
    pub(super) fn new(
        terms: DeniedTerms,
        status: &Status,
        asked: Timestamp,
        answered: Timestamp,
    ) -> KnownDenial {
        let said =
            Said { wait: status.wait(), remaining: status.remaining(), reset_after: status.reset_after() };
        let confirm = answered.saturating_add(CONFIRM_AFTER);
        KnownDenial { terms, said: Some(said), asked, answered, confirm }
    }

    /// What a refund or a reset leaves.
    pub(super) fn forgotten(terms: DeniedTerms, now: Timestamp) -> KnownDenial {
        KnownDenial { terms, said: None, asked: now, answered: now, confirm: now }
    }

    pub(super) fn forget(&mut self) {
        self.said = None;
    }

    pub(super) fn answered(&self) -> Timestamp {
        self.answered
    }

    /// Whether the caller has to confirm it at the store. Others are answered meanwhile.
    pub(super) fn begin_confirmation(&mut self, now: Timestamp) -> bool {
        let is_due = now >= self.confirm;
        if is_due {
            self.confirm = now.saturating_add(ASK_AGAIN_AFTER);
        }
        is_due
    }

    /// When the table may drop it: it is not used after the next confirmation.
    pub(super) fn expires(&self) -> Timestamp {
        self.confirm.saturating_add(CONFIRM_AFTER)
    }

    /// Whether it was asked for after `other`. A refund or a reset counts as later than a request
    /// of the same microsecond.
    pub(super) fn is_newer(&self, other: &KnownDenial) -> bool {
        self.asked > other.asked || (self.asked == other.asked && self.said.is_none())
    }

    /// Whether to remember it instead of `known`. A fresh denial of a smaller cost, or of a longer
    /// wait, is kept, since it answers more requests.
    pub(super) fn replaces(&self, known: &KnownDenial) -> bool {
        if self.said.is_none() {
            return self.asked >= known.asked;
        }
        let denies = |denial: &KnownDenial| denial.said.is_some_and(|said| said.wait != Wait::None);
        let keeps = known.is_fresh(self.answered)
            && denies(known)
            && known.terms.hold_for(&self.terms)
            && if denies(self) {
                known.terms.max_wait > self.terms.max_wait || known.terms.cost < self.terms.cost
            } else {
                known.terms.cost > self.terms.cost
            };
        !known.is_newer(self) && !keeps
    }

    /// Whether its wait is not over, nor its confirmation due.
    fn is_fresh(&self, now: Timestamp) -> bool {
        let is_over = self.said.is_none_or(|said| match said.wait {
            Wait::For(wait) => now >= self.asked.saturating_add(wait),
            _ => false,
        });
        !is_over && self.asked <= now && now < self.answered.saturating_add(CONFIRM_AFTER)
    }

    /// The status of a check that costs so much. `None` if the store has to decide.
    #[inline]
    pub(super) fn status(&self, policy: &Policy, asked: &DeniedTerms, now: Timestamp) -> Option<Status> {
        let Said { wait, remaining, reset_after } = self.said?;
        // A manual clock may step back.
        if !self.terms.hold_for(asked) || now < self.asked {
            return None;
        }
        // The confirmation brings no answer.
        if now >= self.answered.saturating_add(2 * CONFIRM_AFTER) {
            return None;
        }
        let cost = asked.cost;
        // Waits count from the answer, so that none is too short.
        let passed = now.saturating_since(self.answered);
        let reset_after = reset_after.saturating_sub(passed);
        let remaining = if reset_after.is_zero() { policy.capacity() } else { remaining };
        let wait = match wait {
            // The store decided after it was asked, so it denies at least until then.
            Wait::For(wait) if now >= self.asked.saturating_add(wait) => return None,
            _ if cost > policy.largest_cost() => Wait::Never,
            // It is in the set of another check that is denied.
            _ if cost < self.terms.cost || wait == Wait::None => {
                if cost > remaining {
                    return None;
                }
                Wait::None
            }
            // A caller that waits for less in a queue is refused for longer.
            Wait::For(wait) => {
                Wait::For(wait.saturating_sub(passed) + (self.terms.max_wait - asked.max_wait))
            }
            wait => wait,
        };
        Some(Status::new(remaining, wait, reset_after, Stamp::default()))
    }
}
