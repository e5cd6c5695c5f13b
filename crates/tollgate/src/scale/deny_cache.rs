//! The cache of denials: a denied key is answered in the process until its wait is over.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    After, BlockStart, Check, Clock, End, Grant, Key, Policy, PolicyError, Quota, RenewalReport, Reply,
    SentClaims, Settled, Share, Source, Stamp, Status, Store, Then, Times, Timestamp, Unsent, Verdict, Wait,
};

use crate::table::digest::Digest;
use crate::table::sharded::Sharded;

/// A denial is confirmed at the store after this time, so that changes by other processes are seen.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// If a confirmation brings no answer for this long, another request asks.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A [`Store`] that answers denials from memory: see
/// [`StoreExt::deny_cache`](crate::StoreExt::deny_cache).
#[derive(Clone)]
pub struct DenyCache<S> {
    store: S,
    denials: Arc<Denials>,
    capacity: usize,
}

type Denials = Sharded<KnownDenial>;

/// What the store said of one policy and key when it denied a set.
#[derive(Clone, Copy, Debug)]
pub struct KnownDenial {
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
struct DeniedTerms {
    quota: Quota,
    /// A class may have the quota of a tier, and is of another version of the bucket.
    headroom: u64,
    /// How long the caller would have waited in the queue of a leaky bucket. A denial says nothing
    /// about callers that wait for longer.
    max_wait: Duration,
    /// Larger costs are denied too, for at least as long. The sum, if a set names the policy and
    /// key more than once.
    cost: u64,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    wait: Wait,
    remaining: u64,
    reset_after: Duration,
}

/// A check that the store was asked: what is needed to remember its denial.
#[derive(Clone, Copy, Debug)]
struct AskedCheck {
    digest: Digest,
    terms: DeniedTerms,
    /// A slot may come back at any time, so no denial for want of one is remembered.
    is_slot: bool,
}

type AskedChecks = SmallVec<[AskedCheck; 1]>;

/// Remembers the answer to what was asked then.
#[derive(Debug)]
pub struct Remember {
    set: AskedChecks,
    times: Times,
    asked: Timestamp,
}

/// Forgets the denials of these checks.
struct ForgetDenials {
    denials: Arc<Denials>,
    changed: AskedChecks,
}

impl ForgetDenials {
    async fn after<F: Future>(self, change: F) -> F::Output {
        let answer = change.await;
        forget(&self.denials, &self.changed);
        answer
    }
}

impl<S: Store> DenyCache<S> {
    pub(crate) fn new(store: S, capacity: usize) -> DenyCache<S> {
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

    /// The denial of a set by what is remembered of its checks. `None` if the store has to decide.
    ///
    /// One denied check is enough. Otherwise a denied caller would reach the store by inventing
    /// keys of another rule.
    #[inline]
    fn denied(&self, set: &[Check<'_>], asked: &[AskedCheck]) -> Option<Verdict> {
        let mut is_denied = false;
        let mut statuses = SmallVec::<[Status; 4]>::new();
        for (check, AskedCheck { digest, terms, .. }) in set.iter().zip(asked) {
            let (mut table, now) = self.denials.enter_at(digest);
            table.sweep(now);
            let found = table.find(digest);
            if found.is_none() && set.len() > 1 {
                statuses.push(unknown(check.policy, terms));
                continue;
            }
            let denial = &mut table.entry(found?).value;
            let status = denial.status(check.policy, terms, now)?;
            // An answer to a cost of 0 confirms nothing.
            if now >= denial.confirm && terms.cost > 0 {
                // This request asks the store. Others are answered meanwhile.
                denial.confirm = now.saturating_add(ASK_AGAIN_AFTER);
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

    fn asked(&self, set: &[Check<'_>]) -> AskedChecks {
        let asked = |check: &Check<'_>| AskedCheck {
            digest: self.denials.digest(check.policy, check.key),
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

    /// Forgets denials. Returns what forgets them again after a change: what is learned between the
    /// two may be from before the change.
    fn forget<'a>(&self, of: impl Iterator<Item = (&'a Policy, &'a Key)>) -> ForgetDenials {
        let set: SmallVec<[Check<'_>; 4]> = of.map(|(policy, key)| Check::new(policy, key, 0)).collect();
        let changed = self.asked(&set);
        forget(&self.denials, &changed);
        ForgetDenials { denials: Arc::clone(&self.denials), changed }
    }
}

/// The status of a check of which nothing is remembered, in a set that another check denies.
fn unknown(policy: &Policy, asked: &DeniedTerms) -> Status {
    let wait = if asked.cost > policy.largest_cost() { Wait::Never } else { Wait::None };
    Status::new(0, wait, Duration::ZERO, Stamp::default())
}

/// Forgets denials because a refund or a reset is sent, or done. Denials between the two do not
/// count.
fn forget(denials: &Denials, of: &[AskedCheck]) {
    for AskedCheck { digest, terms, .. } in of.iter().filter(|asked| !asked.is_slot) {
        let now = denials.clock().now();
        let forgotten = KnownDenial { terms: *terms, said: None, asked: now, answered: now, confirm: now };
        put(denials, *digest, forgotten);
    }
}

/// Remembers a denial, unless a newer or better one is known.
fn put(denials: &Denials, digest: Digest, denial: KnownDenial) {
    let mut table = denials.lock(denials.shard_of(&digest));
    if let Some(at) = table.find(&digest) {
        let entry = table.entry(at);
        if denial.replaces(&entry.value) {
            entry.value = denial;
            entry.renew(denial.expires(), true);
        }
    } else if table.make_room(1, denial.answered, |_| false) {
        table.reserve(1);
        table.insert(digest, denial, denial.expires());
    }
}

/// Remembers a denial of the store. A grant changes what is known, and a failure forgets it.
fn remember(denials: &Denials, Remember { set, times, asked }: Remember, verdict: Option<&Verdict>) {
    // By the store itself, and not by a fallback behind it.
    let verdict = verdict.filter(|verdict| verdict.share().is_none());
    let now = denials.clock().now();
    for (at, AskedCheck { digest, terms, is_slot }) in set.iter().enumerate() {
        let known = verdict.and_then(|verdict| Some((verdict.is_granted(), *verdict.each().get(at)?)));
        let Some((is_granted, status)) = known else {
            let mut table = denials.lock(denials.shard_of(digest));
            if let Some(found) = table.find(digest) {
                table.entry(found).value.said = None;
            }
            continue;
        };
        let said =
            Said { wait: status.wait(), remaining: status.remaining(), reset_after: status.reset_after() };
        let confirm = now.saturating_add(CONFIRM_AFTER);
        let answer = KnownDenial { terms: *terms, said: Some(said), asked, answered: now, confirm };
        if is_granted {
            // A cost of 0 changes nothing, and nothing is remembered of keys that are not denied.
            let mut table = denials.lock(denials.shard_of(digest));
            if let Some(found) = table.find(digest).filter(|_| terms.cost > 0) {
                let entry = table.entry(found);
                if !entry.value.is_newer(&answer) {
                    entry.value = answer;
                    entry.renew(answer.expires(), true);
                }
            }
        } else if times == Times::ONCE && !is_slot {
            put(denials, *digest, answer);
        }
    }
}

impl DeniedTerms {
    fn of(check: &Check<'_>) -> DeniedTerms {
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
    /// When the table may drop it: it is not used after the next confirmation.
    fn expires(&self) -> Timestamp {
        self.confirm.saturating_add(CONFIRM_AFTER)
    }

    /// Whether it was asked for after `other`. A refund or a reset counts as later than a request
    /// of the same microsecond.
    fn is_newer(&self, other: &KnownDenial) -> bool {
        self.asked > other.asked || (self.asked == other.asked && self.said.is_none())
    }

    /// Whether to remember it instead of `known`. A fresh denial of a smaller cost, or of a longer
    /// wait, is kept, since it answers more requests.
    fn replaces(&self, known: &KnownDenial) -> bool {
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
    fn status(&self, policy: &Policy, asked: &DeniedTerms, now: Timestamp) -> Option<Status> {
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

impl<E> After<Result<Verdict, E>> for Remember {
    type Shared = Arc<Denials>;
    type Output = Result<Verdict, E>;

    fn after(self, denials: &Arc<Denials>, answer: Result<Verdict, E>) -> Result<Verdict, E> {
        remember(denials, self, answer.as_ref().ok());
        answer
    }
}

impl<S: Store> Store for DenyCache<S> {
    type Error = S::Error;
    type Acquire = Then<S::Acquire, Remember>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        // Looks change nothing, and show what the store knows.
        let asked_set = if times == Times::LOOK { AskedChecks::new() } else { self.asked(set) };
        if times == Times::ONCE
            && let Some(verdict) = self.denied(set, &asked_set)
        {
            return Reply::Now(Ok(verdict));
        }
        let asked = self.denials.clock().now();
        self.store.acquire(set, times).then(&self.denials, Remember { set: asked_set, times, asked })
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), S::Error> + use<S> {
        let of = grants.iter().map(|grant| (grant.policy, grant.key));
        self.forget(of).after(self.store.refund(grants))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, S::Error> + use<S> {
        let of = grants.iter().map(|grant| (grant.policy, grant.key));
        self.forget(of).after(self.store.settle(grants, total))
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), S::Error> + use<S> {
        self.store.renew(grants, report)
    }

    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, S::Error> + use<S> {
        self.forget([(policy, key)].into_iter()).after(self.store.block(policy, key, share))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), S::Error> + use<S> {
        let of = policies.iter().map(|policy| (*policy, key));
        self.forget(of).after(self.store.reset(key, policies))
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> DenyCache<S> {
        DenyCache { store: self.store.with_deadline(deadline), ..self.clone() }
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    /// With a table of its own, so that its denials push out no others.
    fn in_shadow(&self) -> DenyCache<S> {
        let clock = self.denials.clock().clone();
        DenyCache::new(self.store.in_shadow(), self.capacity).clock(clock)
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<S> {
        self.store.close(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

impl<S: fmt::Debug> fmt::Debug for DenyCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DenyCache { store, capacity, .. } = self;
        f.debug_struct("DenyCache").field("store", store).field("capacity", capacity).finish_non_exhaustive()
    }
}
