//! What this process counts, minute by minute.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tollgate_core::{Check, Key, Timestamp, Verdict, Wait};

use super::page::{Page, PolicyCount};
use super::sample;
use super::settings::Recording;
use super::space_saving::{Kept, SpaceSaving};

/// Minutes that wait for a store that does not answer. The oldest is forgotten first.
const MOST_CLOSED: usize = 10;

/// A flush that is due for longer has no runtime that drives it.
const OVERDUE_AFTER: Duration = Duration::from_secs(60);

/// The keys of a set. Long ones have names.
type NamedKeys<'a> = SmallVec<[(&'a Key, Option<Arc<str>>); 4]>;

/// Where the counts go.
pub(super) trait Destination: Send + Sync {
    /// The name of a key in the log.
    fn name(&self, key: &Key) -> String;

    /// Has a task of this runtime store the counts after a while.
    fn flush_later(&self, book: Weak<Book>, runtime: &Handle);
}

/// Shared by the clones of a recorder.
pub struct Book {
    settings: Recording,
    destination: Box<dyn Destination>,
    /// One in this many decisions is counted, with that weight.
    one_in: AtomicU32,
    pages: Mutex<OpenPages>,
    flushing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct OpenPages {
    open: Minute,
    closed: VecDeque<Minute>,
    /// When the counts should be stored at the latest. `None` if nothing was counted since.
    due: Option<Timestamp>,
    /// Where the next flush runs.
    runtime: Handle,
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
    /// The numbers of the policies.
    by_name: HashMap<Box<str>, usize>,
    keys: MinuteKeys,
    /// Those of rules in shadow, which push out no others. `None` if there were none.
    in_shadow: Option<Box<MinuteKeys>>,
}

#[derive(Debug)]
struct MinuteKeys {
    allowed: SpaceSaving,
    denied: SpaceSaving,
}

impl Book {
    pub(super) fn new(settings: Recording, destination: Box<dyn Destination>, runtime: Handle) -> Book {
        let open = Minute::new(minute_of(settings.clock.now()), &settings);
        let pages = Mutex::new(OpenPages { open, closed: VecDeque::new(), due: None, runtime });
        Book { settings, destination, one_in: AtomicU32::new(1), pages, flushing: Default::default() }
    }

    pub(super) fn settings(&self) -> &Recording {
        &self.settings
    }

    /// Held by the flush that writes.
    pub(super) fn flushing(&self) -> &tokio::sync::Mutex<()> {
        &self.flushing
    }

    /// How many decisions the next one stands for; `None` if it is not counted.
    #[inline]
    pub(super) fn sample(&self) -> Option<u32> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        (one_in == 1 || sample::is_one_in(one_in)).then_some(one_in)
    }

    /// Counts the decision on a set, which stands for `weight` decisions. Keys of rules in shadow
    /// have places of their own.
    pub(super) fn record<'a>(
        self: &Arc<Self>,
        set: impl Iterator<Item = Check<'a>> + Clone,
        verdict: &Verdict,
        weight: u32,
        is_in_shadow: bool,
    ) {
        // Before the lock, since callers choose how long a key is. Once for all rules by that key.
        let mut names = NamedKeys::new();
        for Check { key, .. } in set.clone() {
            // Of a long key only the name is kept.
            let is_long = key.as_encoded().len() > Key::MAX_TEXT;
            let known = names.iter().find(|(known, _)| is_long && *known == key);
            let name = match known {
                Some((_, name)) => name.clone(),
                None => is_long.then(|| self.destination.name(key).into()),
            };
            names.push((key, name));
        }
        let now = self.settings.clock.now();
        let number = minute_of(now);
        let mut pages = self.lock();
        if number > pages.open.number {
            pages.turn(number, &self.settings);
            self.one_in.store(1, Ordering::Relaxed);
        }
        let open = &mut pages.open;
        if is_in_shadow && open.in_shadow.is_none() {
            open.in_shadow = Some(Box::new(MinuteKeys::new(&self.settings)));
        }
        open.one_in = open.one_in.max(weight);
        open.counted = open.counted.saturating_add(1);
        if open.counted == self.settings.exact_up_to {
            self.one_in.store(self.settings.one_in, Ordering::Relaxed);
        }
        let is_allowed = verdict.is_granted();
        let refuses = |at: usize| verdict.each().get(at).is_some_and(|status| status.wait() != Wait::None);
        let is_blocked = !is_allowed
            && set.clone().enumerate().any(|(at, check)| check.policy.numbers().is_block() && refuses(at));
        for ((at, check), (_, name)) in set.enumerate().zip(&names).filter(|((_, check), _)| check.cost > 0) {
            // A block has the name of its rule, which would count twice.
            if check.policy.numbers().is_block() == is_blocked && (is_allowed || refuses(at)) {
                open.count(&check, name.as_deref(), weight.into(), is_allowed, is_in_shadow);
            }
        }
        let runtime = pages.schedule(now, self.settings.flush_every);
        drop(pages);
        if let Some(runtime) = runtime {
            self.destination.flush_later(Arc::downgrade(self), &runtime);
        }
    }

    /// What is counted from now on needs another flush.
    pub(super) fn begin_flush(&self) {
        self.lock().due = None;
    }

    /// Tries again later to store what was counted.
    pub(super) fn flush_again(self: &Arc<Self>) {
        let runtime = self.lock().schedule(self.settings.clock.now(), self.settings.flush_every);
        if let Some(runtime) = runtime {
            self.destination.flush_later(Arc::downgrade(self), &runtime);
        }
    }

    /// What to write: closed minutes, which are taken, and the number and the top keys of the open
    /// one.
    pub(super) fn take(&self) -> (Vec<Minute>, u64, Page<Kept>) {
        let number = minute_of(self.settings.clock.now());
        let mut pages = self.lock();
        if number > pages.open.number {
            pages.turn(number, &self.settings);
            self.one_in.store(1, Ordering::Relaxed);
        }
        let (number, open) = (pages.open.number, pages.open.top(self.settings.keys));
        (mem::take(&mut pages.closed).into(), number, open)
    }

    /// The same page with the names of the log, which takes no lock.
    pub(super) fn named(&self, page: Page<Kept>) -> Page {
        let name = |key: Kept| match key {
            Kept::Key(key) => self.destination.name(&key),
            Kept::Name(name) => name.into(),
        };
        let Page { one_in, policies, allowed, denied } = page;
        Page { one_in, policies, allowed: allowed.named(name), denied: denied.named(name) }
    }

    /// Keeps the minutes that could not be written for the next time.
    pub(super) fn keep(&self, minutes: Vec<Minute>) {
        let mut pages = self.lock();
        for minute in minutes.into_iter().rev() {
            pages.closed.push_front(minute);
        }
        pages.bound();
    }

    fn lock(&self) -> MutexGuard<'_, OpenPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenPages {
    /// The runtime for a flush, unless one is on its way. The runtime of an overdue flush is gone,
    /// or is not driven: then the caller's takes over.
    fn schedule(&mut self, now: Timestamp, interval: Duration) -> Option<Handle> {
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        if self.due.is_some() {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                "counts of usage are not stored: the runtime of their recorder is gone, or is blocked"
            );
            if let Ok(here) = Handle::try_current() {
                self.runtime = here;
            }
        }
        self.due = Some(now.saturating_add(interval).saturating_add(OVERDUE_AFTER));
        Some(self.runtime.clone())
    }

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
        let keys = MinuteKeys::new(settings);
        let (policies, by_name) = (Vec::new(), HashMap::new());
        Minute { number, one_in: 1, counted: 0, policies, by_name, keys, in_shadow: None }
    }

    fn count(
        &mut self,
        check: &Check<'_>,
        name: Option<&str>,
        weight: u64,
        is_allowed: bool,
        is_in_shadow: bool,
    ) {
        let policy = check.policy.name();
        let at = self.by_name.get(policy).copied().unwrap_or_else(|| {
            self.policies.push(PolicyCount { name: policy.to_owned(), allowed: 0, denied: 0 });
            self.by_name.insert(policy.into(), self.policies.len() - 1);
            self.policies.len() - 1
        });
        let of_rules = self.in_shadow.as_mut().filter(|_| is_in_shadow).map_or(&mut self.keys, |keys| keys);
        let (keys, count) = if is_allowed {
            (&mut of_rules.allowed, &mut self.policies[at].allowed)
        } else {
            (&mut of_rules.denied, &mut self.policies[at].denied)
        };
        *count += weight;
        keys.add(at, check.key, name, weight);
    }

    pub(super) fn top(&self, keys: usize) -> Page<Kept> {
        let top = |of: fn(&MinuteKeys) -> &SpaceSaving| {
            let in_shadow = self.in_shadow.as_ref().map(|in_shadow| of(in_shadow).top(keys));
            of(&self.keys).top(keys).with(in_shadow.unwrap_or_default())
        };
        Page {
            one_in: self.one_in,
            policies: self.policies.clone(),
            allowed: top(|keys| &keys.allowed),
            denied: top(|keys| &keys.denied),
        }
    }
}

impl MinuteKeys {
    fn new(settings: &Recording) -> MinuteKeys {
        let counted = || SpaceSaving::new(settings.watched());
        MinuteKeys { allowed: counted(), denied: counted() }
    }
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The number of a minute since the epoch.
pub(super) fn minute_of(time: Timestamp) -> u64 {
    time.as_micros() / 60_000_000
}
