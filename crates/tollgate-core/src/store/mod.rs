//! The contract of a store, which keeps usage and decides.

pub(crate) mod block_start;
pub(crate) mod boxed;
pub(crate) mod check;
pub(crate) mod end;
pub(crate) mod error;
pub(crate) mod renewal;
pub(crate) mod reply;
pub(crate) mod sent_claims;
pub(crate) mod settled;
pub(crate) mod source;
pub(crate) mod unsent;
pub(crate) mod verdict;

use std::future::{Future, ready};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;

use crate::key::Key;
use crate::policy::share::Share;
use crate::policy::{Policy, PolicyError};
use crate::quota::Quota;
use crate::store::block_start::BlockStart;
use crate::store::check::{Check, Grant, Times};
use crate::store::end::End;
use crate::store::error::StoreError;
use crate::store::renewal::{Renewal, RenewalReport};
use crate::store::reply::Reply;
use crate::store::sent_claims::SentClaims;
use crate::store::settled::{Settled, granted};
use crate::store::unsent::Unsent;
use crate::store::verdict::{Stamp, Status, Verdict};

/// Holds the state of every (policy, key) pair and decides atomically.
///
/// One operation carries everything: *acquire the whole set of checks k times, with min ≤ k ≤ max;
/// all or nothing across the set.* A denial charges no policy. The test suite is
/// `tollgate-conformance`.
///
/// # What every store promises
/// - No policy admits more than its algorithm allows, however many callers ask at once.
/// - Either every check of a set is charged, k times its cost, or none is.
/// - A denied request and a look charge nothing, also under another version of the policy. Asking
///   again changes no wait. Only a version's entry in the record of a bucket is added by its first
///   denial, and what a clock that stepped back left ahead is cut: see
///   [`PolicyNumbers::version_burst`](crate::PolicyNumbers::version_burst).
/// - A cost of 0 always passes and charges nothing.
/// - State expires by itself, without a thread or a task. A slot of
///   [`Algorithm::InFlight`](crate::Algorithm::InFlight) ends with its time to live unless it is
///   [renewed](Store::renew), or is kept until it is released: see
///   [`Status::ends_after`](crate::Status::ends_after).
///
/// # How a grant ends
/// [`Store::acquire`] is polled by a request. [`Store::refund`], [`Store::settle`],
/// [`Store::renew`], [`Store::block`] and [`Store::reset`] end what was granted. Their futures
/// borrow nothing, so they can go on in a task: an implementation returns `impl End<(), E> +
/// use<>`, or `use<S>` with its type parameters.
///
/// Such an operation may begin where it is called, or at its first poll. So poll its future once
/// where it is made: a store in memory has then done it, without a runtime. The future may be
/// polled for the second time in another runtime, and needs no timer before that.
///
/// Dropped later, the operation may or may not have been executed. Nothing may send it again after
/// an error, unless [nothing was executed](StoreError::executed_nothing).
///
/// Stores are handles: clones share their state.
pub trait Store: Clone + Send + Sync + 'static {
    /// The error of this store: [`std::convert::Infallible`] if it always answers. Any other type
    /// requires a failure policy.
    type Error: StoreError;
    /// The future of a verdict.
    type Acquire: Future<Output = Result<Verdict, Self::Error>> + Send + 'static;

    /// Acquires the whole set as often as `times` allows, all or nothing.
    ///
    /// Dropping the future may or may not charge. It never charges part of a set. For a set with a
    /// slot, see [`Store::sent_claims`].
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire>;

    /// Grants a set from units that this process has already paid for, such as those of leases.
    /// `None` if they do not suffice: then [`Store::acquire`] decides.
    ///
    /// A wrapper that remembers denials asks this first, so that such a grant pays for one look in
    /// a table. The default holds no units, and a wrapper need not override it.
    fn acquire_held(&self, set: &[Check<'_>], times: Times) -> Option<Verdict> {
        let _ = (set, times);
        None
    }

    /// Refunds units that were granted and not used.
    ///
    /// A refund never exceeds the capacity, never reaches another window and never creates state.
    /// It has no effect if the units have already been refilled or if their window is over. A leaky
    /// bucket keeps the delays of later requests, so only its latest grant can be refunded. A
    /// sliding log refunds grants of the newest
    /// [`REFUNDABLE_TIMES`](crate::Algorithm::REFUNDABLE_TIMES): an older one stays charged.
    ///
    /// To refund a grant in parts, pass the stamp from
    /// [`Stamp::after_refund`](crate::Stamp::after_refund) to the next part. A bucket only knows
    /// when the debt of each grant ends. If two debts overlap and the older grant is refunded
    /// first, a refund of the younger may return units that time has refilled. These are fewer than
    /// the older grant had. A caller that aborts requests chooses this order. Whatever it is:
    ///
    /// - **Net**: in any time t, the units that are granted less those that are refunded are at
    ///   most burst + rate × t.
    /// - **Gross**: refunds of grants from before that time do not count here. Then it is one burst
    ///   more for each time in which the bucket has refilled since the first grant. So a caller may
    ///   use at once what it has left unused, and never more in all than burst + rate × the whole
    ///   time.
    ///
    /// With [`Stamp::NEWEST`] it is of no grant: the newest units come back, whichever they are.
    /// The totals of tracked usage stay then.
    ///
    /// If the clock has stepped back since the grant, debt that was forgiven then is not refunded
    /// again (best effort). This fails once the clock reaches the time of the grant for the second
    /// time: an aligned window takes the grant for its own, and a bucket takes it for current debt.
    ///
    /// A refund of [`Algorithm::InFlight`](crate::Algorithm::InFlight) is the release of a slot. It
    /// frees that slot and no other, so a second release, or one after its time to live, frees
    /// nothing.
    ///
    /// Do not refund a grant that is older than a [reset](Store::reset), which has already returned
    /// its units. Such a refund is taken from later grants, if those are large enough.
    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Self::Error> + use<Self>;

    /// Corrects the charge of grants to the `total` of units that were used. The grants are of one
    /// policy and key, in the order in which they were made.
    ///
    /// Less than was granted is [refunded](Store::refund), from the newest grant backwards, as
    /// units are used in the order of their grants. More is charged without asking whether it fits.
    /// What exceeds the quota is [debt](crate::PolicyNumbers::with_debt), up to one more capacity:
    /// requests are refused until it is paid. Windows forget it when they end, and buckets refill
    /// it. What exceeds that too is forgiven. A leaky bucket has no debt, and forgives all. Quota
    /// and capacity are those of all callers, also for grants of a [class](Policy::leaving).
    ///
    /// The default refunds or acquires. A wrapper must override it, or its own rule for a verdict
    /// decides.
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Self::Error> + use<Self> {
        settle(self, grants, total)
    }

    /// Renews slots of [`Algorithm::InFlight`](crate::Algorithm::InFlight): each is held for
    /// another time to live. Calls `report` with the place of each grant and what became of it, as
    /// soon as that is known. What is not reported when the future ends is
    /// [unanswered](Renewal::Unanswered).
    ///
    /// A store of several nodes renews the slots of each node by a call of its own, so that a node
    /// that does not answer costs no slot of the others. It fails only if no node answers.
    ///
    /// A slot that the store does not know, because its time to live has ended or the store has
    /// lost it, is taken again if there is room. So nothing may renew a slot that it has begun to
    /// release.
    ///
    /// The default is for a store that keeps each slot until it is released, such as one of
    /// [`State`](crate::algorithm::State)s: all are held. A wrapper must override it.
    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Self::Error> + use<Self> {
        (0..grants.len()).for_each(|at| report(at, Renewal::Held));
        ready(Ok(()))
    }

    /// Blocks a key by a policy of [`Algorithm::Block`](crate::Algorithm::Block): see
    /// [`PolicyNumbers::block`](crate::PolicyNumbers::block). `share` is the [`Verdict::share`] of
    /// the denial that was one too many.
    ///
    /// A block that goes on is not started again, and ends when it would have.
    ///
    /// The default charges one unit that no grant has paid, which is how a
    /// [`State`](crate::algorithm::State) starts a block. A wrapper must override it.
    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, Self::Error> + use<Self> {
        let unpaid = Grant { policy, key, units: 0, stamp: Stamp::default(), share };
        let settled = settle(self, &[unpaid], 1);
        async move { Ok(BlockStart::of(settled.await?)) }
    }

    /// Returns a handle whose waits end after `deadline`, counted from the call, or without a
    /// deadline: its futures then wait as long as the store takes. It replaces the deadline of this
    /// handle. The error has the kind [`ErrorKind::Timeout`](crate::ErrorKind::Timeout), and the
    /// store may still execute the operation. Callers never pass zero.
    ///
    /// Without a deadline are operations that no request waits for, such as the fetch of a lease,
    /// whose answer is worth something however late.
    ///
    /// The default returns a clone, for a store that ends no waits: a
    /// [timeout](Store::wait_limit) around it then sets a timer for each wait, which costs more. A
    /// wrapper must override it.
    #[must_use]
    fn with_deadline(&self, deadline: Option<Duration>) -> Self {
        let _ = deadline;
        self.clone()
    }

    /// Returns how long a wait for an answer takes at most: the deadline of
    /// [`Store::with_deadline`], if this handle keeps it. A caller that asks again for one request
    /// does so within it.
    ///
    /// The default has none. A store that ends waits, and a wrapper, must override it.
    fn wait_limit(&self) -> Option<Duration> {
        None
    }

    /// Returns the counts of claims of slots, if this store ends abandoned claims by itself.
    ///
    /// A claim is abandoned if its caller drops the future, or if this store has ended the wait. If
    /// it was not sent, it is withdrawn. If it was, its answer is awaited until the time to live of
    /// the slot would end. A grant is then refunded at once, with the rates of its set.
    ///
    /// The default has none. Then the caller runs each claim to its end and releases the slot, but
    /// a claim that is answered after its [deadline](Store::with_deadline) holds its slot for a
    /// time to live. A wrapper must override it.
    fn sent_claims(&self) -> Option<&SentClaims> {
        None
    }

    /// Returns a handle for checks that no request waits for, and that change nothing for others:
    /// those of rules in shadow. It has states of its own, and takes neither room nor time from
    /// the checks of other handles. A check that would have to wait too long fails instead.
    ///
    /// The default returns a clone, so the rules in shadow share the room of the store with all
    /// others, and a policy of the same name shares its state. A store with a bound on keys or with
    /// queues, and a wrapper, must override it.
    #[must_use]
    fn in_shadow(&self) -> Self {
        self.clone()
    }

    /// Sends what this store has put off, such as units of leases. Waits for the answers, for
    /// `limit` at the longest, and returns what is left. For a process that stops.
    ///
    /// It begins where it is called, and counts what fails from then on. So a caller may end its
    /// own work before it awaits the result.
    ///
    /// Checks are decided as before. A store does not know which of its clones still serve, and a
    /// failure policy would decide what it refused. A layer or a limiter that is closed refuses
    /// requests itself.
    ///
    /// The default does nothing and returns an empty [`Unsent`]. A wrapper must override it.
    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<Self> {
        let _ = limit;
        ready(Unsent::default())
    }

    /// Checks whether this store can enforce a policy. A layer refuses a policy at construction if
    /// its store does not support it. Wrappers ask the stores inside them.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        let _ = policy;
        Ok(())
    }

    /// Forgets the usage of `policies` by `key`: the next request finds the full quota.
    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Self::Error> + use<Self>;
}

/// [`Store::settle`] by [`Store::refund`] and [`Store::acquire`], for a store that decides by
/// itself.
///
/// # Errors
/// Those of these two. More than `u32::MAX` units are charged in several calls. If one of them
/// fails after another, that is no error: the rest is forgiven, or unknown.
pub fn settle<S: Store>(store: &S, grants: &[Grant<'_>], total: u64) -> impl End<Settled, S::Error> + use<S> {
    let granted = granted(grants);
    let unused: SmallVec<[Grant<'_>; 1]> = unused_units(grants, total).collect();
    let refund = (!unused.is_empty()).then(|| store.refund(&unused));
    let beyond = grants.last().filter(|_| total > granted).and_then(|newest| {
        Some(Beyond {
            store: store.clone(),
            policy: newest.policy.numbers().with_debt()?,
            key: newest.key.clone(),
        })
    });
    async move {
        if let Some(refund) = refund {
            refund.await?;
        }
        let settled = Settled {
            charged: granted.min(total),
            forgiven: total.saturating_sub(granted),
            ..Settled::default()
        };
        match beyond {
            Some(beyond) => beyond.charge(settled).await,
            None => Ok(settled),
        }
    }
}

/// Gives back `units` of a key without a grant of them: debt first, then the newest units, and
/// never more than were used. It is a [`Store::refund`] of [`Stamp::NEWEST`], so requests in
/// flight, blocks and leaky buckets take none, and what was executed must not be sent again. The
/// [total](crate::UsageTotals) of the key stays: the units were used.
///
/// ```
/// use tollgate_core::algorithm::State;
/// use tollgate_core::{Policy, Quota, Stamp, Timestamp};
///
/// let (policy, now) = (Policy::new("api", Quota::per_hour(10)), Timestamp::from_micros(1));
/// let mut state = State::new(&policy);
/// let look = state.look(&policy, now);
/// state.charge(&policy, now, look, 8);
/// state.refund(&policy, now, 5, Stamp::NEWEST);
/// assert_eq!(state.look(&policy, now).remaining, 7);
/// ```
///
/// # Errors
/// Those of the store.
pub fn credit<S: Store>(
    store: &S,
    policy: &Policy,
    key: &Key,
    units: u64,
) -> impl End<(), S::Error> + use<S> {
    // A bucket gives back its capacity for each grant at most, and may owe as much again.
    let most = policy.capacity();
    let parts = [units.min(most), units.saturating_sub(most)].into_iter().filter(|units| *units > 0);
    let newest = parts.map(|units| Grant { policy, key, units, stamp: Stamp::NEWEST, share: None });
    store.refund(&newest.collect::<SmallVec<[Grant<'_>; 2]>>())
}

/// [`Store::renew`] that waits for all answers: what became of each grant, in order.
///
/// # Errors
/// Those of the store.
pub fn renewals<S: Store>(store: &S, grants: &[Grant<'_>]) -> impl End<Vec<Renewal>, S::Error> + use<S> {
    let each = Arc::new(Mutex::new(vec![Renewal::Unanswered; grants.len()]));
    let seen = Arc::clone(&each);
    let report = move |at: usize, renewal| {
        if let Some(place) = seen.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
            *place = renewal;
        }
    };
    let renewed = store.renew(grants, Arc::new(report));
    async move {
        renewed.await?;
        Ok(mem::take(&mut *each.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// What a [settlement](Store::settle) to `total` gives back, from the newest grant backwards.
pub fn unused_units<'a>(grants: &[Grant<'a>], total: u64) -> impl Iterator<Item = Grant<'a>> {
    let mut unused = granted(grants).saturating_sub(total);
    let newest_first = grants.iter().rev().map(move |grant| {
        let units = grant.units.min(unused);
        unused -= units;
        Grant { units, ..*grant }
    });
    newest_first.filter(|grant| grant.units > 0)
}

/// Where to charge more than was granted.
struct Beyond<S> {
    store: S,
    /// With debt.
    policy: Policy,
    key: Key,
}

impl<S: Store> Beyond<S> {
    /// Charges what is forgiven so far, by acquiring it.
    async fn charge(self, mut settled: Settled) -> Result<Settled, S::Error> {
        let Beyond { store, policy, key } = self;
        let (mut left, before) = (settled.forgiven.min(policy.capacity()), settled.charged);
        while left > 0 {
            // No store grants more units in one call. If there are more than times, several at a
            // time.
            let most = left.min(Quota::MAX_UNITS);
            let cost = most.div_ceil(u32::MAX.into());
            let times = u32::try_from(most / cost).unwrap_or(u32::MAX);
            let reply = store.acquire(&[Check::new(&policy, &key, cost)], Times::up_to(times));
            let verdict = match reply.wait().await {
                Ok(verdict) => verdict,
                // No error, after which what was charged before could be charged again.
                Err(error) if settled.charged > before => {
                    let unknown = if error.executed_nothing() { 0 } else { u64::from(times) * cost };
                    settled.unknown += unknown;
                    settled.forgiven -= unknown;
                    return Ok(settled);
                }
                Err(error) => return Err(error),
            };
            let charged = u64::from(verdict.times()) * cost;
            let remaining = verdict.each().first().map_or(0, Status::remaining);
            settled.charged += charged;
            settled.forgiven -= charged;
            settled.debt += charged.min(policy.numbers().most_debt().saturating_sub(remaining));
            left -= charged;
            if verdict.times() < times {
                // What is left of the debt is less than that cost.
                left = left.min(cost - 1);
            }
        }
        Ok(settled)
    }
}
