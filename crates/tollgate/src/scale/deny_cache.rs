//! The cache of denials: a denied key is answered in the process until its wait is over.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use smallvec::SmallVec;
use tollgate_core::{
    Check, Clock, Grant, Key, Policy, PolicyError, Quota, Reply, Stamp, Status, Store, Times, Timestamp,
    Verdict, Wait,
};

use crate::table::digest::Digest;
use crate::table::sharded::Sharded;

/// A denial is confirmed at the store after this time, so that changes by other processes are seen.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// If a confirmation brings no answer for this long, another request asks.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A [`Store`] that answers denials from memory: see
/// [`ScaleExt::deny_cache`](crate::ScaleExt::deny_cache).
#[derive(Clone)]
pub struct DenyCache<S> {
    store: S,
    denials: Arc<Sharded<Denial>>,
    capacity: usize,
}

/// What the store said of one policy and key when it denied a set.
#[derive(Clone, Copy, Debug)]
struct Denial {
    quota: Quota,
    /// The cost that was denied. Larger costs are denied too, for at least as long.
    cost: u32,
    /// `None` after a refund or a reset. Denials that were asked for before that do not count.
    said: Option<Said>,
    /// When the store was asked, and when it answered. Its decision was between the two.
    asked: Timestamp,
    answered: Timestamp,
    /// When the store is asked again.
    confirm: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    wait: Wait,
    remaining: u32,
    reset_after: Duration,
}

/// A check that the store was asked: what is needed to remember its denial.
#[derive(Clone, Copy, Debug)]
struct Asked {
    digest: Digest,
    quota: Quota,
    cost: u32,
}

type AskedSet = SmallVec<[Asked; 1]>;

impl<S: Store> DenyCache<S> {
    pub(super) fn new(store: S, capacity: usize) -> DenyCache<S> {
        DenyCache { store, denials: Arc::new(Sharded::new(capacity, Clock::system())), capacity }
    }

    /// Replaces the clock, and forgets all denials. A [`ManualClock`](crate::ManualClock) is for
    /// tests.
    #[must_use]
    pub fn clock(self, clock: impl Into<Clock>) -> DenyCache<S> {
        DenyCache { denials: Arc::new(Sharded::new(self.capacity, clock.into())), ..self }
    }

    /// Returns how many policies of keys are remembered now. Some may be over.
    pub fn denials(&self) -> usize {
        self.denials.iter().map(|table| table.len()).sum()
    }

    /// The denial of a set by what is remembered of each check. `None` if the store has to decide.
    #[inline]
    fn denied(&self, set: &[Check<'_>]) -> Option<Verdict> {
        let mut is_denied = false;
        let mut statuses = SmallVec::<[Status; 4]>::new();
        for check in set {
            let (mut table, digest, now) = self.denials.enter(check.policy, check.key);
            table.sweep(now);
            let at = table.find(&digest)?;
            let denial = &mut table.slot(at).value;
            let status = denial.status(check, now)?;
            if now >= denial.confirm {
                // This request asks the store. Others are answered meanwhile.
                denial.confirm = now.saturating_add(ASK_AGAIN_AFTER);
                return None;
            }
            is_denied |= status.wait() != Wait::None;
            statuses.push(status);
        }
        is_denied.then(|| Verdict::new(0, Duration::ZERO, statuses))
    }

    fn asked(&self, set: &[Check<'_>]) -> AskedSet {
        let asked = |check: &Check<'_>| Asked {
            digest: self.denials.digest(check.policy, check.key),
            quota: check.policy.quota(),
            cost: check.cost,
        };
        set.iter().map(asked).collect()
    }

    /// Forgets denials before a change, and again after it: denials between the two do not count.
    fn forgetting(
        &self,
        set: &[Check<'_>],
        change: impl FnOnce() -> Reply<Result<(), S::Error>, S::Done>,
    ) -> Reply<Result<(), S::Error>, Forgetting<S::Done>> {
        let set = self.asked(set);
        forget(&self.denials, &set);
        match change() {
            Reply::Now(answer) => {
                forget(&self.denials, &set);
                Reply::Now(answer)
            }
            Reply::Later(done) => Reply::Later(Forgetting { done, set, denials: Arc::clone(&self.denials) }),
        }
    }
}

/// Forgets denials because a refund or a reset is sent, or done.
fn forget(denials: &Sharded<Denial>, of: &[Asked]) {
    for Asked { digest, quota, cost } in of {
        let now = denials.clock().now();
        let forgotten =
            Denial { quota: *quota, cost: *cost, said: None, asked: now, answered: now, confirm: now };
        put(denials, *digest, forgotten);
    }
}

/// Remembers a denial, unless a newer one is known.
fn put(denials: &Sharded<Denial>, digest: Digest, denial: Denial) {
    let mut table = denials.lock(denials.shard_of(&digest));
    if let Some(at) = table.find(&digest) {
        let slot = table.slot(at);
        if denial.asked >= slot.value.asked {
            slot.value = denial;
            slot.renew(denial.expires(), true);
        }
    } else if table.make_room(1, denial.answered, |_| false) {
        table.reserve(1);
        table.insert(digest, denial, denial.expires());
    }
}

/// Remembers a denial of the store, and forgets what its answer contradicts.
fn answered<E>(denials: &Sharded<Denial>, set: &[Asked], answer: &Result<Verdict, E>, asked: Timestamp) {
    // By the store itself, and not by a fallback behind it.
    let denied = |verdict: &&Verdict| !verdict.is_granted() && verdict.share().is_none();
    let denied = answer.as_ref().ok().filter(denied);
    let now = denials.clock().now();
    for (at, check) in set.iter().enumerate() {
        if let Some(status) = denied.and_then(|verdict| verdict.each().get(at)) {
            let said = Said {
                wait: status.wait(),
                remaining: status.remaining(),
                reset_after: status.reset_after(),
            };
            let Asked { digest, quota, cost } = *check;
            let confirm = now.saturating_add(CONFIRM_AFTER);
            put(denials, digest, Denial { quota, cost, said: Some(said), asked, answered: now, confirm });
            continue;
        }
        let mut table = denials.lock(denials.shard_of(&check.digest));
        if let Some(found) = table.find(&check.digest) {
            let denial = &mut table.slot(found).value;
            // A smaller cost may pass where a larger one is denied.
            if answer.is_err() || check.cost >= denial.cost {
                denial.said = None;
            }
        }
    }
}

impl Denial {
    /// When the table may drop it: it is not used after the next confirmation.
    fn expires(&self) -> Timestamp {
        self.confirm.saturating_add(CONFIRM_AFTER)
    }

    /// The status of a check. `None` if the store has to decide.
    #[inline]
    fn status(&self, check: &Check<'_>, now: Timestamp) -> Option<Status> {
        let Said { wait, remaining, reset_after } = self.said?;
        if self.quota != check.policy.quota() {
            return None;
        }
        // Waits count from the answer, so that none is too short.
        let passed = Duration::from_micros(now.as_micros().saturating_sub(self.answered.as_micros()));
        let wait = match wait {
            // The store decided after it was asked, so it denies at least until then.
            Wait::For(wait) if now >= self.asked.saturating_add(wait) => return None,
            _ if check.cost < self.cost => Wait::None,
            Wait::For(_) if check.cost > check.policy.largest_cost() => Wait::Never,
            Wait::For(wait) => Wait::For(wait.saturating_sub(passed)),
            wait => wait,
        };
        Some(Status::new(remaining, wait, reset_after.saturating_sub(passed), Stamp::default()))
    }
}

impl<S: Store> Store for DenyCache<S> {
    type Error = S::Error;
    type Acquire = Asking<S::Acquire>;
    type Done = Forgetting<S::Done>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        let once = times == Times::ONCE;
        if once && let Some(verdict) = self.denied(set) {
            return Reply::Now(Ok(verdict));
        }
        let set_asked = if once { self.asked(set) } else { AskedSet::new() };
        let asked = self.denials.clock().now();
        match self.store.acquire(set, times) {
            Reply::Now(answer) => {
                answered(&self.denials, &set_asked, &answer, asked);
                Reply::Now(answer)
            }
            Reply::Later(answer) => {
                let denials = Arc::clone(&self.denials);
                Reply::Later(Asking { answer, asked, set: set_asked, denials })
            }
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), S::Error>, Self::Done> {
        let set: SmallVec<[Check<'_>; 4]> =
            grants.iter().map(|grant| Check::new(grant.policy, grant.key, 0)).collect();
        self.forgetting(&set, || self.store.refund(grants))
    }

    fn end_waits_after(&mut self, limit: Duration) -> bool {
        self.store.end_waits_after(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), S::Error>, Self::Done> {
        let set: SmallVec<[Check<'_>; 4]> =
            policies.iter().map(|policy| Check::new(policy, key, 0)).collect();
        self.forgetting(&set, || self.store.reset(key, policies))
    }
}

impl<S: fmt::Debug> fmt::Debug for DenyCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DenyCache { store, capacity, .. } = self;
        f.debug_struct("DenyCache").field("store", store).field("capacity", capacity).finish_non_exhaustive()
    }
}

/// The answer of a store, remembered if it is a denial.
#[pin_project]
pub struct Asking<F> {
    #[pin]
    answer: F,
    asked: Timestamp,
    set: AskedSet,
    denials: Arc<Sharded<Denial>>,
}

impl<F, E> Future for Asking<F>
where
    F: Future<Output = Result<Verdict, E>>,
{
    type Output = Result<Verdict, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(cx));
        answered(this.denials, this.set, &answer, *this.asked);
        Poll::Ready(answer)
    }
}

impl<F> fmt::Debug for Asking<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

/// A refund or a reset, after which denials are forgotten.
#[pin_project]
pub struct Forgetting<F> {
    #[pin]
    done: F,
    set: AskedSet,
    denials: Arc<Sharded<Denial>>,
}

impl<F: Future> Future for Forgetting<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.done.poll(cx));
        forget(this.denials, this.set);
        Poll::Ready(output)
    }
}

impl<F> fmt::Debug for Forgetting<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forgetting").finish_non_exhaustive()
    }
}
