//! What this process counts, minute by minute.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Check, Clock, Key, UsageLog, Verdict, Wait};

use super::page::{Listed, Page, PolicyCount};
use super::sample;
use super::settings::Recording;
use super::space_saving::{Counted, SpaceSaving};

/// Minutes that wait for a store that does not answer. The oldest is forgotten first.
const MOST_CLOSED: usize = 10;

/// Shared by the clones of a recorder.
#[derive(Debug)]
pub(super) struct Book {
    settings: Recording,
    /// One in this many decisions is counted, with that weight.
    one_in: AtomicU32,
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    open: Minute,
    closed: VecDeque<Minute>,
}

/// What was counted in one minute.
#[derive(Debug)]
pub(super) struct Minute {
    /// Since the epoch.
    pub(super) number: u64,
    /// The most that one decision stands for.
    one_in: u32,
    /// Decisions that were counted one by one.
    counted: u32,
    policies: Vec<PolicyCount>,
    allowed: SpaceSaving,
    denied: SpaceSaving,
}

impl Book {
    pub(super) fn new(settings: Recording) -> Book {
        let open = Minute::new(minute(&settings.clock), &settings);
        let pages = Mutex::new(Pages { open, closed: VecDeque::new() });
        Book { settings, one_in: AtomicU32::new(1), pages }
    }

    pub(super) fn settings(&self) -> &Recording {
        &self.settings
    }

    /// How many decisions the next one stands for; `None` if it is not counted.
    #[inline]
    pub(super) fn sample(&self) -> Option<u32> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        (one_in == 1 || sample::is_one_in(one_in)).then_some(one_in)
    }

    /// Counts the decision on a set, which stands for `weight` decisions.
    #[inline(never)]
    pub(super) fn record<'a>(&self, set: impl Iterator<Item = Check<'a>>, verdict: &Verdict, weight: u32) {
        let number = minute(&self.settings.clock);
        let mut pages = self.lock();
        if number > pages.open.number {
            pages.turn(number, &self.settings);
            self.one_in.store(1, Ordering::Relaxed);
        }
        let open = &mut pages.open;
        open.one_in = open.one_in.max(weight);
        open.counted = open.counted.saturating_add(1);
        if open.counted == self.settings.exact_up_to {
            self.one_in.store(self.settings.one_in, Ordering::Relaxed);
        }
        for (at, check) in set.enumerate().filter(|(_, check)| check.cost > 0) {
            if verdict.is_granted() {
                open.count(check.policy.name(), check.key, weight.into(), true);
            } else if verdict.each().get(at).is_some_and(|status| status.wait() != Wait::None) {
                open.count(check.policy.name(), check.key, weight.into(), false);
            }
        }
    }

    /// The pages to write: those of closed minutes, which are taken, and that of the open one.
    pub(super) fn pages(&self, log: &impl UsageLog) -> (Vec<Minute>, (u64, Page)) {
        let number = minute(&self.settings.clock);
        let mut pages = self.lock();
        if number > pages.open.number {
            pages.turn(number, &self.settings);
            self.one_in.store(1, Ordering::Relaxed);
        }
        let open = pages.open.page(log, &self.settings);
        (mem::take(&mut pages.closed).into(), (pages.open.number, open))
    }

    /// Keeps the minutes that could not be written for the next time.
    pub(super) fn keep(&self, minutes: Vec<Minute>) {
        let mut pages = self.lock();
        for minute in minutes.into_iter().rev() {
            pages.closed.push_front(minute);
        }
        pages.bound();
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn turn(&mut self, number: u64, settings: &Recording) {
        let closed = mem::replace(&mut self.open, Minute::new(number, settings));
        if !closed.policies.is_empty() {
            self.closed.push_back(closed);
            self.bound();
        }
    }

    fn bound(&mut self) {
        while self.closed.len() > MOST_CLOSED {
            self.closed.pop_front();
        }
    }
}

impl Minute {
    fn new(number: u64, settings: &Recording) -> Minute {
        let counted = || SpaceSaving::new(settings.watched());
        Minute { number, one_in: 1, counted: 0, policies: Vec::new(), allowed: counted(), denied: counted() }
    }

    fn count(&mut self, policy: &str, key: &Key, weight: u64, is_allowed: bool) {
        let known = self.policies.iter().position(|known| known.name == policy);
        let at = known.unwrap_or_else(|| {
            self.policies.push(PolicyCount { name: policy.to_owned(), allowed: 0, denied: 0 });
            self.policies.len() - 1
        });
        let (keys, count) = if is_allowed {
            (&mut self.allowed, &mut self.policies[at].allowed)
        } else {
            (&mut self.denied, &mut self.policies[at].denied)
        };
        *count += weight;
        keys.add(at, key, weight);
    }

    pub(super) fn page(&self, log: &impl UsageLog, settings: &Recording) -> Page {
        let listed = |counted: &Counted| Listed {
            policy: counted.policy,
            key: log.name(&counted.key),
            count: counted.count,
            error: counted.error,
        };
        let [allowed, denied] = [&self.allowed, &self.denied].map(|keys| {
            let (top, floor) = keys.top(settings.keys);
            (top.iter().map(listed).collect(), floor)
        });
        Page {
            one_in: self.one_in,
            policies: self.policies.clone(),
            allowed: allowed.0,
            denied: denied.0,
            allowed_floor: allowed.1,
            denied_floor: denied.1,
        }
    }
}

/// The number of the current minute since the epoch.
pub(super) fn minute(clock: &Clock) -> u64 {
    clock.now().as_micros() / 60_000_000
}
