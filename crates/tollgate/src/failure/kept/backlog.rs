//! The list of corrections that are kept.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::mem;

use tokio::task::JoinHandle;
use tollgate_core::{Key, Policy, Timestamp};

use super::outstanding::{Corrections, Outstanding};

/// What became of the corrections that a store [keeps](super::super::Answering::keep_corrections).
/// Those that merge count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorrectionCounts {
    /// Are kept now.
    pub waiting: usize,
    /// Were executed by the store after they were kept.
    pub sent: u64,
    /// Were dropped because what they correct was over.
    pub expired: u64,
    /// Were not kept because there was no room. Their units are
    /// [forgiven](crate::store::Settled::forgiven), or stay charged.
    pub refused: u64,
    /// Were sent after they were kept, and not answered: they may have been executed.
    pub unknown: u64,
}

/// A correction, and when it changes nothing any more.
pub(super) type Dated = (Outstanding, Timestamp);

#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// With their units.
    waiting: HashMap<Dated, u64>,
    /// Are being sent. Those that were not executed wait again.
    sending: HashMap<Dated, Sending>,
    counts: CorrectionCounts,
    /// Sends what waits.
    task: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Sending {
    units: u64,
    /// Whether the store was asked, so that it may have executed it.
    is_sent: bool,
}

impl Backlog {
    /// Adds corrections, or none of them if that would be more than `most`.
    pub(super) fn add(&mut self, corrections: Corrections, now: Timestamp, most: usize) -> bool {
        let kept = |(correction, units, stamp): (Outstanding, u64, _)| {
            let until = correction.ends(stamp, now);
            ((correction, until), units)
        };
        let each: Vec<(Dated, u64)> = corrections.into_iter().map(kept).collect();
        let new = each.iter().filter(|(kept, _)| !self.waiting.contains_key(kept)).count();
        if self.waiting.len() + self.sending.len() + new > most {
            self.counts.refused += each.len() as u64;
            return false;
        }
        self.wait(each);
        true
    }

    /// Lets corrections wait, with what waits already.
    pub(super) fn wait(&mut self, each: impl IntoIterator<Item = (Dated, u64)>) {
        for (kept, units) in each {
            let waiting = self.waiting.entry(kept).or_default();
            *waiting = waiting.saturating_add(units);
        }
    }

    pub(super) fn is_being_sent(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// `None` without a runtime: a later correction may bring one.
    pub(super) fn sent_by(&mut self, task: Option<JoinHandle<()>>) {
        self.task = task;
    }

    /// Whether nothing is left to send, so that the next correction needs a new task.
    pub(super) fn stops_if_empty(&mut self) -> bool {
        let is_empty = self.waiting.is_empty();
        if is_empty {
            self.task = None;
        }
        is_empty
    }

    /// Removes the corrections of policies and a key. Returns those that the store was not asked
    /// for. What becomes of the others is unknown.
    pub(super) fn forget(&mut self, key: &Key, policies: &[&Policy]) -> Vec<(Dated, u64)> {
        let goes = |(correction, _): &Dated| policies.iter().any(|policy| correction.concerns(policy, key));
        let mut gone: Vec<(Dated, u64)> = self.waiting.extract_if(|kept, _| goes(kept)).collect();
        for (kept, sending) in self.sending.extract_if(|kept, _| goes(kept)) {
            match sending.is_sent {
                true => self.counts.unknown += 1,
                false => gone.push((kept, sending.units)),
            }
        }
        gone
    }

    pub(super) fn counts(&self) -> CorrectionCounts {
        CorrectionCounts { waiting: self.waiting.len() + self.sending.len(), ..self.counts }
    }

    /// Begins to send what waits and is not over: first the charges and refunds, then the credits,
    /// which find nothing to give back before the charges of their key.
    pub(super) fn begin(&mut self, now: Timestamp) -> [Vec<(Dated, u64)>; 2] {
        // Left by a task whose runtime has stopped.
        self.end();
        let before = self.waiting.len();
        self.waiting.retain(|(_, until), _| *until > now);
        self.counts.expired += (before - self.waiting.len()) as u64;
        let mut due: Vec<(Dated, u64)> = mem::take(&mut self.waiting).into_iter().collect();
        let sending =
            |(kept, units): &(Dated, u64)| (kept.clone(), Sending { units: *units, is_sent: false });
        self.sending = due.iter().map(sending).collect();
        // In another order of keys each time, so that a part of a Cluster that is dead does not
        // hold up the others. After charges by a larger quota, those by a smaller one may be beyond
        // its debt.
        let order = RandomState::new();
        due.sort_by_cached_key(|((correction, _), _)| {
            (order.hash_one(correction.key()), correction.capacity())
        });
        let (credits, others) = due.into_iter().partition(|((correction, _), _)| correction.is_credit());
        [others, credits]
    }

    /// Notes that the store is asked for a correction. Whether it is still to be sent.
    pub(super) fn sends(&mut self, kept: &Dated) -> bool {
        self.sending.get_mut(kept).map(|sending| sending.is_sent = true).is_some()
    }

    /// Notes that nothing of a correction was executed.
    pub(super) fn not_executed(&mut self, kept: &Dated) {
        if let Some(sending) = self.sending.get_mut(kept) {
            sending.is_sent = false;
        }
    }

    /// The credits to keys of which nothing else is still to be sent.
    pub(super) fn behind(
        &self,
        others: &[(Dated, u64)],
        mut credits: Vec<(Dated, u64)>,
    ) -> Vec<(Dated, u64)> {
        let unsent = others.iter().filter(|(kept, _)| self.sending.contains_key(kept));
        let keys: HashSet<&[u8]> = unsent.map(|((other, _), _)| other.key().as_encoded()).collect();
        credits.retain(|((credit, _), _)| !keys.contains(credit.key().as_encoded()));
        credits
    }

    pub(super) fn executed(&mut self, kept: &Dated) {
        self.counts.sent += u64::from(self.sending.remove(kept).is_some());
    }

    pub(super) fn not_answered(&mut self, kept: &Dated) {
        self.counts.unknown += u64::from(self.sending.remove(kept).is_some());
    }

    /// Lets wait again what was not executed.
    pub(super) fn end(&mut self) {
        let (sent, unsent): (Vec<_>, Vec<_>) =
            mem::take(&mut self.sending).into_iter().partition(|(_, sending)| sending.is_sent);
        self.counts.unknown += sent.len() as u64;
        self.wait(unsent.into_iter().map(|(kept, sending)| (kept, sending.units)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{Grant, Quota, Stamp};

    use super::super::outstanding::{corrections, refunds};
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.saturating_add(Duration::from_secs(1_800_000_000 + seconds))
    }

    /// A charge of a bucket that is full again after a minute, and after two with debt.
    fn add(backlog: &mut Backlog, units: u64, now: Timestamp) -> bool {
        let (policy, key) = (Policy::new("tokens", Quota::per_minute(1_000)), Key::from("ada"));
        let grant = Grant { policy: &policy, key: &key, units: 0, stamp: Stamp::default(), share: None };
        backlog.add(corrections(&[grant], units), now, 10)
    }

    #[test]
    fn charges_that_merge_end_with_their_own_time() {
        let mut backlog = Backlog::default();
        for n in 0..10 {
            assert!(add(&mut backlog, 100, at(100 * n)));
        }
        let [charges, credits] = backlog.begin(at(900));
        let units: u64 = charges.iter().map(|(_, units)| units).sum();
        assert_eq!((units, credits.len()), (200, 0), "of the last two minutes");
        assert_eq!(backlog.counts().expired, 8);
    }

    #[test]
    fn the_charges_of_a_key_are_few() {
        let mut backlog = Backlog::default();
        for n in 0..120 {
            assert!(add(&mut backlog, 1, at(n)), "the {n}th finds room");
        }
        let [charges, _] = backlog.begin(at(119));
        assert_eq!(charges.iter().map(|(_, units)| units).sum::<u64>(), 120);
    }

    #[test]
    fn the_corrections_of_a_settlement_are_kept_together_or_not_at_all() {
        let mut backlog = Backlog::default();
        let (policy, key) = (Policy::new("tokens", Quota::per_minute(1_000)), Key::from("ada"));
        let grant =
            |us| Grant { policy: &policy, key: &key, units: 10, stamp: Stamp::new(us, 0), share: None };
        let two = [1, 2].map(|second| grant(at(second).as_micros()));
        assert!(!backlog.add(refunds(&two), at(0), 1));
        assert_eq!((backlog.counts().waiting, backlog.counts().refused), (0, 2));
        assert!(backlog.add(refunds(&two), at(0), 2));
        assert_eq!(backlog.counts().waiting, 2);
    }

    #[test]
    fn a_credit_stays_behind_a_charge_of_its_key_that_is_not_executed() {
        let mut backlog = Backlog::default();
        let policy = Policy::new("tokens", Quota::per_minute(1_000));
        for key in ["ada", "bob"].map(Key::from) {
            let grant = |units, stamp| Grant { policy: &policy, key: &key, units, stamp, share: None };
            assert!(backlog.add(corrections(&[grant(0, Stamp::default())], 100), at(0), 10));
            assert!(backlog.add(refunds(&[grant(100, Stamp::NEWEST)]), at(0), 10));
        }
        let [charges, credits] = backlog.begin(at(0));
        for (charge, _) in &charges {
            assert!(backlog.sends(charge));
            match *charge.0.key() == Key::from("ada") {
                true => backlog.not_executed(charge),
                false => backlog.executed(charge),
            }
        }
        let sent = backlog.behind(&charges, credits);
        assert_eq!(sent.iter().map(|((credit, _), _)| credit.key()).collect::<Vec<_>>(), [&Key::from("bob")]);
    }
}
