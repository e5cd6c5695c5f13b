//! The denials that are known, and how an answer of the store changes them.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Check, Clock, Policy, Source, Stamp, Status, Times, Timestamp, Verdict, Wait};

use super::known_denial::{DeniedTerms, KnownDenial};
use crate::table::digest::Digest;
use crate::table::sharded::Sharded;

/// Denials of the policies of keys.
#[derive(Debug)]
pub struct Denials(Sharded<KnownDenial>);

/// A check that the store was asked: what is needed to remember its denial.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedCheck {
    digest: Digest,
    terms: DeniedTerms,
    /// A slot may come back at any time, so no denial for want of one is remembered.
    is_slot: bool,
}

pub(super) type AskedChecks = SmallVec<[AskedCheck; 1]>;

/// Remembers the answer to what was asked then.
#[derive(Debug)]
pub struct Remember {
    pub(super) set: AskedChecks,
    pub(super) times: Times,
    pub(super) asked: Timestamp,
}

impl Denials {
    pub(super) fn new(capacity: usize, clock: Clock) -> Denials {
        Denials(Sharded::new(capacity, clock))
    }

    pub(super) fn clock(&self) -> &Clock {
        self.0.clock()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|table| table.len()).sum()
    }

    /// The denial of a set by what is remembered of its checks. `None` if the store has to decide.
    ///
    /// One denied check is enough. Otherwise a denied caller would reach the store by inventing
    /// keys of another rule.
    #[inline]
    pub(super) fn answer(&self, set: &[Check<'_>], asked: &[AskedCheck]) -> Option<Verdict> {
        let mut is_denied = false;
        let mut statuses = SmallVec::<[Status; 4]>::new();
        for (check, AskedCheck { digest, terms, .. }) in set.iter().zip(asked) {
            let (mut table, now) = self.0.enter_at(digest);
            table.sweep(now);
            let found = table.find(digest);
            if found.is_none() && set.len() > 1 {
                statuses.push(unknown(check.policy, terms));
                continue;
            }
            let denial = &mut table.entry(found?).value;
            let status = denial.status(check.policy, terms, now)?;
            // An answer to a cost of 0 confirms nothing.
            if terms.cost > 0 && denial.begin_confirmation(now) {
                return None;
            }
            is_denied |= status.wait() != Wait::None;
            statuses.push(status);
        }
        let verdict = match statuses[..] {
            _ if !is_denied => return None,
            [status] => Verdict::of_one(0, Duration::ZERO, status),
            _ => Verdict::new(0, Duration::ZERO, statuses),
        };
        Some(verdict.from_source(Source::DenyCache))
    }

    pub(super) fn asked(&self, set: &[Check<'_>]) -> AskedChecks {
        let asked = |check: &Check<'_>| AskedCheck {
            digest: self.0.digest(check.policy, check.key),
            terms: DeniedTerms::of(check),
            is_slot: check.policy.is_in_flight(),
        };
        let mut each: AskedChecks = set.iter().map(asked).collect();
        if each.len() > 1 {
            let one_by_one = each.clone();
            for asked in &mut each {
                let same = one_by_one.iter().filter(|other| other.digest == asked.digest);
                asked.terms.cost = same.fold(0, |sum: u64, other| sum.saturating_add(other.terms.cost));
            }
        }
        each
    }

    /// Remembers a denial of the store. A grant changes what is known, and a failure forgets it.
    pub(super) fn remember(&self, Remember { set, times, asked }: Remember, verdict: Option<&Verdict>) {
        // By the store itself, and not by a fallback behind it.
        let verdict = verdict.filter(|verdict| verdict.share().is_none());
        let now = self.clock().now();
        for (at, AskedCheck { digest, terms, is_slot }) in set.iter().enumerate() {
            let known = verdict.and_then(|verdict| Some((verdict.is_granted(), verdict.each().get(at)?)));
            let Some((is_granted, status)) = known else {
                let mut table = self.0.lock(self.0.shard_of(digest));
                if let Some(found) = table.find(digest) {
                    table.entry(found).value.forget();
                }
                continue;
            };
            let answer = KnownDenial::new(*terms, status, asked, now);
            if is_granted {
                // A cost of 0 changes nothing, and nothing is remembered of keys that are not
                // denied.
                let mut table = self.0.lock(self.0.shard_of(digest));
                if let Some(found) = table.find(digest).filter(|_| terms.cost > 0) {
                    let entry = table.entry(found);
                    if !entry.value.is_newer(&answer) {
                        entry.value = answer;
                        entry.renew(answer.expires(), true);
                    }
                }
            } else if times == Times::ONCE && !is_slot {
                self.put(*digest, answer);
            }
        }
    }

    /// Forgets denials because a refund or a reset is sent, or done. Denials between the two do not
    /// count.
    pub(super) fn forget(&self, of: &[AskedCheck]) {
        for AskedCheck { digest, terms, .. } in of.iter().filter(|asked| !asked.is_slot) {
            self.put(*digest, KnownDenial::forgotten(*terms, self.clock().now()));
        }
    }

    /// Remembers a denial, unless a newer or better one is known.
    fn put(&self, digest: Digest, denial: KnownDenial) {
        let mut table = self.0.lock(self.0.shard_of(&digest));
        if let Some(at) = table.find(&digest) {
            let entry = table.entry(at);
            if denial.replaces(&entry.value) {
                entry.value = denial;
                entry.renew(denial.expires(), true);
            }
        } else if table.make_room(1, denial.answered(), |_| false) {
            table.reserve(1);
            table.insert(digest, denial, denial.expires());
        }
    }
}

/// The status of a check of which nothing is remembered, in a set that another check denies.
fn unknown(policy: &Policy, asked: &DeniedTerms) -> Status {
    let wait = if asked.cost > policy.largest_cost() { Wait::Never } else { Wait::None };
    Status::new(0, wait, Duration::ZERO, Stamp::default())
}
