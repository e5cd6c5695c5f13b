//! The same rules and store without a Tower service around them.

pub(crate) mod permit;
pub(crate) mod queue_slot;
pub(crate) mod refusal;
mod until_ready;
mod usage;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::{Algorithm, Check, Key, Policy, Reply, Source, Store, Times, Timestamp, Verdict};

use crate::denial::Denial;
use crate::extract::Head;
use crate::memory::MemoryStore;
#[cfg(feature = "metrics")]
use crate::observe::metrics::Metrics;
use crate::observe::{Decision, Observers};
use crate::or_panic::or_panic;
use crate::reason::Reason;
use crate::report::Report;
use crate::rule::set::{Ask, Asks, Rules, RulesError};
use crate::rule::{IntoRules, MissingKey, PolicyExt};
use crate::wait_queue::WaitQueues;

use self::refusal::Refusal;

pub use self::permit::Permit;

/// Asks rules and a store directly: for handlers, WebSocket messages, jobs, and keys from a body.
///
/// A layer and a limiter made from each other
/// ([`RateLimitLayer::limiter`](crate::RateLimitLayer::limiter)) share their rules and their state.
///
/// For keys that are not in a request there is [`Limiter::by_key`]. Methods count a [`Key`] as it
/// is. To count with an extractor, pass the key that the extractor
/// makes: [`Key::network`] for an address (with 64 for IPv6), [`Key::of_branch`] 0 or 1 for
/// `a.or(b)`, [`Key::join`] for `(a, b)`.
///
/// ```
/// use tollgate::extract::header;
/// use tollgate::{Key, Limiter, Policy, PolicyExt, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
/// let limiter = Limiter::new([Policy::new("mails", Quota::per_day(2)).by(header("x-user"))]);
/// let user = Key::from("ada");
///
/// assert!(limiter.check_key(&user, 1).await.is_ok());
/// assert_eq!(limiter.look_key(&user).await?.statuses()[0].remaining(), 1);
/// let denial = limiter.check_key(&user, 2).await.unwrap_err();
/// assert_eq!(denial.violated().collect::<Vec<_>>(), ["mails"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Limiter<S = MemoryStore> {
    rules: Arc<Rules>,
    pub(crate) store: S,
    observers: Observers,
    pub(crate) queues: WaitQueues<Refusal>,
    pub(crate) waits_for_store: bool,
}

/// An error that cannot happen: the error of a store that a layer or a limiter accepts.
///
/// A store in memory never fails. A store over a network can, and needs a
/// [failure policy](crate::failure).
#[diagnostic::on_unimplemented(
    message = "this store can fail (`{Self}`), and what happens to requests then has not been chosen",
    label = "can fail",
    note = "write `.fall_back_to(MemoryStore::new(), Share::new(1, 3))` after the store to grant a third of each quota here \
            while it fails, `.fail_closed()` to refuse requests, or `.fail_open()` to let them pass without limit",
    note = "a store over a network needs `.timeout(..)` before that, or requests wait for as long as it does; \
            `.circuit_breaker(..)` after it spares them that wait",
    note = "these are methods of the trait `tollgate::FailureExt`"
)]
pub trait NeverFails: sealed::Sealed + Send + 'static {
    /// Converts an error that cannot exist into any type.
    fn never<T>(self) -> T;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::convert::Infallible {}
}

// Otherwise the compiler recommends `Infallible` instead of a failure policy.
#[diagnostic::do_not_recommend]
impl NeverFails for std::convert::Infallible {
    fn never<T>(self) -> T {
        match self {}
    }
}

impl Limiter {
    /// Decides these policies together, for keys that the caller passes: to
    /// [`check_key`](Limiter::check_key) and the other methods with a key, or to a
    /// [`CallLimitLayer`](crate::CallLimitLayer). In a request these rules find no key.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let mails = Limiter::by_key([Policy::new("mails", Quota::per_day(2))]);
    /// assert!(mails.check_key(&Key::from("ada"), 2).await.is_ok());
    /// assert!(mails.check_key(&Key::from("ada"), 1).await.is_err());
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Limiter::try_by_key`] would return an error.
    #[track_caller]
    pub fn by_key(policies: impl IntoIterator<Item = Policy>) -> Limiter {
        or_panic(Limiter::try_by_key(policies))
    }

    /// [`Limiter::by_key`] for policies that are known only at run time.
    ///
    /// # Errors
    /// [`RulesError`] if there are none, or if two have one name.
    pub fn try_by_key(policies: impl IntoIterator<Item = Policy>) -> Result<Limiter, RulesError> {
        Limiter::try_new(policies.into_iter().map(|policy| policy.by(|_: &Parts| None)))
    }

    /// Enforces one rule, or decides several together, on a [`MemoryStore`] of their own.
    ///
    /// # Panics
    /// If [`Limiter::try_new`] would return an error.
    #[track_caller]
    pub fn new(rules: impl IntoRules) -> Limiter {
        or_panic(Limiter::try_new(rules))
    }

    /// [`Limiter::new`] for rules that are known only at run time.
    ///
    /// # Errors
    /// [`RulesError`] if there are none, or if two have one name.
    pub fn try_new(rules: impl IntoRules) -> Result<Limiter, RulesError> {
        Ok(Limiter {
            rules: Arc::new(Rules::try_new(rules)?),
            store: MemoryStore::new(),
            observers: Observers::default(),
            queues: WaitQueues::new(),
            waits_for_store: true,
        })
    }
}

impl<S> Limiter<S> {
    /// Sets the store. A store that can fail needs a [failure policy](crate::failure) first.
    ///
    /// # Panics
    /// If [`Limiter::try_store`] would return an error.
    #[track_caller]
    pub fn store<T>(self, store: T) -> Limiter<T>
    where
        T: Store,
        T::Error: NeverFails,
    {
        or_panic(self.try_store(store))
    }

    /// [`Limiter::store`] for rules or stores that are known only at run time.
    ///
    /// # Errors
    /// [`RulesError::Unsupported`] if the store cannot enforce a policy, such as a
    /// [fallback](crate::FailureExt::fall_back_to) whose share of it is less than one unit.
    pub fn try_store<T>(self, store: T) -> Result<Limiter<T>, RulesError>
    where
        T: Store,
        T::Error: NeverFails,
    {
        self.rules.supported_by(&store)?;
        let Limiter { rules, observers, waits_for_store, .. } = self;
        Ok(Limiter { rules, store, observers, queues: WaitQueues::new(), waits_for_store })
    }

    /// Calls `observe` for each decision: [`RateLimitLayer::observe`] says more.
    ///
    /// [`RateLimitLayer::observe`]: crate::RateLimitLayer::observe
    #[must_use]
    pub fn observe(mut self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> Limiter<S> {
        self.observers.add(observe);
        self
    }

    /// Counts decisions and units as metrics: [`RateLimitLayer::metrics`] says more.
    ///
    /// [`RateLimitLayer::metrics`]: crate::RateLimitLayer::metrics
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    #[must_use]
    pub fn metrics(self) -> Limiter<S> {
        let metrics = Metrics::new(&self.rules);
        self.observe(move |decision| metrics.record(decision))
    }

    /// Sets whether callers that wait, by [`until_ready`](Limiter::until_ready) or a
    /// [`CallLimitLayer`](crate::CallLimitLayer::wait_at_most), also wait while the store is
    /// unavailable; `true` by default. With `false`, they get the denial of the failure policy at
    /// once. Clones from before do not wait in the same queues.
    #[must_use]
    pub fn wait_for_store(self, wait: bool) -> Limiter<S> {
        Limiter { queues: WaitQueues::new(), waits_for_store: wait, ..self }
    }

    /// Shows observers what was decided about a request that waited `since` then.
    #[inline]
    pub(crate) fn show(&self, asks: &[Ask], verdict: &Verdict, since: Option<Timestamp>) {
        self.observers.verdict(&self.rules, asks, verdict, since);
    }

    /// Shows observers that a rule found no key, if it did not.
    pub(crate) fn shown(&self, asks: Result<Asks, Denial>) -> Result<Asks, Denial> {
        asks.inspect_err(|denial| self.show_no_key(denial))
    }

    /// Shows observers that a rule found no key.
    pub(crate) fn show_no_key(&self, denial: &Denial) {
        if let Some(rule) = denial.report().first() {
            self.observers.no_key(&self.rules, rule);
        }
    }

    /// The time now, if there are observers, for a request that begins to wait.
    pub(crate) fn waits_since(&self) -> Option<Timestamp> {
        self.observers.now()
    }

    pub(crate) fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }
}

impl<S: Store> Limiter<S>
where
    S::Error: NeverFails,
{
    /// Charges a request to all rules that apply to it, or to none. If the future is dropped before
    /// it is ready, the request may have been charged.
    ///
    /// # Errors
    /// A [`Denial`] with the rules that refused, and how long they do.
    pub async fn check(&self, parts: &Parts) -> Result<Permit, Denial> {
        self.charge(self.shown(self.ask(&parts.into()))?, None).await
    }

    /// Charges `cost` units of each rule to `key`, all or none, and ignores the extractors, costs
    /// and exemptions of the rules. If the future is dropped before it is ready, the units may have
    /// been charged.
    ///
    /// **A rule with tiers is asked for the policy's own quota**, because a tier is a function of a
    /// request. If tiers matter, keep the request's parts and call [`Limiter::check`].
    ///
    /// # Errors
    /// A [`Denial`] with the rules that refused, and how long they do. An empty key is refused with
    /// [`Reason::NoKey`](crate::Reason::NoKey), status 400, unless
    /// [`MissingKey`](crate::MissingKey) says otherwise.
    pub async fn check_key(&self, key: &Key, cost: u32) -> Result<Permit, Denial> {
        self.charge(self.shown(self.asks_for(key, cost))?, None).await
    }

    /// Returns the state of the rules that apply to a request. Charges nothing.
    ///
    /// # Errors
    /// A [`Denial`] if a rule finds no key and refuses such requests.
    #[doc(alias("peek", "dry_run"))]
    pub async fn look(&self, parts: &Parts) -> Result<Report, Denial> {
        Ok(self.look_at(&self.ask(&parts.into())?).await)
    }

    /// Returns the state of each rule for `key`; for a rule with tiers, by the policy's own quota.
    /// Charges nothing.
    ///
    /// # Errors
    /// A [`Denial`] if the key is empty and a rule refuses such requests.
    pub async fn look_key(&self, key: &Key) -> Result<Report, Denial> {
        Ok(self.look_at(&self.asks_for(key, 1)?).await)
    }

    /// Refunds what a permit was charged, as far as the algorithms allow: see [`Store::refund`].
    /// The permit must be from this limiter or a clone, because only its store has charged it.
    pub async fn refund(&self, mut permit: Permit) {
        self.refund_units(&mut permit, u32::MAX).await;
    }

    /// Refunds up to `units` of what each rule charged a permit and has not refunded yet: for work
    /// that cost less than was reserved for it. A leaky bucket refunds only its latest grant.
    pub async fn refund_units(&self, permit: &mut Permit, units: u32) {
        permit.start_refund(&self.store, units).wait().await.unwrap_or_else(NeverFails::never);
    }

    /// Forgets what `key` has used of every rule, in all of its tiers. Do not
    /// [refund](Limiter::refund) a permit from before: that would return what others were charged
    /// since.
    ///
    /// The empty key belongs to no caller, and this does nothing for it. With
    /// [`MissingKey::Share`](crate::MissingKey::Share), requests without a key share the state of
    /// [`Key::global`]: reset that.
    pub async fn reset(&self, key: &Key) {
        if key.is_empty() {
            return;
        }
        let policies: SmallVec<[&Policy; 4]> = self.rules.policies_with_states().collect();
        self.store.reset(key, &policies).wait().await.unwrap_or_else(NeverFails::never);
    }

    /// What a request asks of each rule that applies to it.
    pub(crate) fn ask(&self, head: &Head<'_>) -> Result<Asks, Denial> {
        self.rules.ask(head).map_err(|rule| self.no_key(rule, self.rules.why_missing(rule, head)))
    }

    /// The denial of a request in which this rule found no key, for that reason.
    fn no_key(&self, rule: usize, reason: Reason) -> Denial {
        Denial::new(reason, Report::new(&self.rules, [rule], Verdict::without_statuses(0)))
    }

    /// Asks the store once, for a caller that waits until `deadline` at the longest.
    #[inline]
    pub(crate) fn acquire(
        &self,
        asks: &[Ask],
        times: Times,
        deadline: Option<Duration>,
    ) -> Reply<Result<Verdict, S::Error>, S::Acquire> {
        match (asks, deadline) {
            ([], _) => Reply::Now(Ok(Verdict::without_statuses(times.max()).from_source(Source::Rule))),
            // Through the step below, a request costs 1.04 × (peers, allowed, hot).
            ([ask], None) => {
                self.store.acquire(&[Check::new(self.rules.policy(ask.policy), &ask.key, ask.cost)], times)
            }
            _ => self.acquire_set(asks, times, deadline),
        }
    }

    fn acquire_set(
        &self,
        asks: &[Ask],
        times: Times,
        deadline: Option<Duration>,
    ) -> Reply<Result<Verdict, S::Error>, S::Acquire> {
        let policy = |ask: &Ask| {
            let policy = self.rules.policy(ask.policy);
            deadline.map_or(Cow::Borrowed(policy), |deadline| waiting_until(policy, deadline))
        };
        let policies: SmallVec<[Cow<'_, Policy>; 4]> = asks.iter().map(policy).collect();
        let set: SmallVec<[Check<'_>; 4]> =
            asks.iter().zip(&policies).map(|(ask, policy)| Check::new(policy, &ask.key, ask.cost)).collect();
        self.store.acquire(&set, times)
    }

    pub(crate) fn report(&self, asks: &[Ask], verdict: &Verdict) -> Report {
        Report::new(&self.rules, asks.iter().map(|ask| ask.policy), verdict.clone())
    }

    /// Charges what is asked, for a caller that waits until `deadline` at the longest.
    pub(crate) async fn charge(&self, asks: Asks, deadline: Option<Duration>) -> Result<Permit, Denial> {
        let reply = self.acquire(&asks, Times::ONCE, deadline);
        self.decided(asks, reply).await
    }

    /// The decision on what was asked, when the store has answered.
    pub(crate) async fn decided(
        &self,
        asks: Asks,
        reply: Reply<Result<Verdict, S::Error>, S::Acquire>,
    ) -> Result<Permit, Denial> {
        let since = if let Reply::Later(_) = reply { self.waits_since() } else { None };
        let verdict = reply.wait().await.unwrap_or_else(NeverFails::never);
        self.show(&asks, &verdict, since);
        let report = self.report(&asks, &verdict);
        if verdict.is_granted() { Ok(Permit::new(report, asks)) } else { Err(Denial::of(report)) }
    }

    async fn look_at(&self, asks: &[Ask]) -> Report {
        let verdict = self.acquire(asks, Times::LOOK, None).wait().await.unwrap_or_else(NeverFails::never);
        self.report(asks, &verdict)
    }

    /// Each rule treats the empty key as it does a request without a key.
    pub(crate) fn asks_for(&self, key: &Key, cost: u32) -> Result<Asks, Denial> {
        let mut asks = Asks::new();
        for (number, rule) in self.rules.iter().enumerate() {
            match rule.key_or_else(Some(key.clone())) {
                Ok(key) => asks.push(Ask { policy: number, key, cost }),
                Err(MissingKey::Skip) => {}
                Err(_) => return Err(self.no_key(number, Reason::NoKey)),
            }
        }
        Ok(asks)
    }
}

/// The same policy for a caller that waits until `deadline` at the longest.
fn waiting_until(policy: &Policy, deadline: Duration) -> Cow<'_, Policy> {
    match policy.algorithm() {
        Algorithm::LeakyBucket { max_wait } if max_wait > deadline => {
            let algorithm = Algorithm::LeakyBucket { max_wait: deadline };
            // Valid, since a longer wait is.
            let shorter = Policy::try_new(policy.name(), policy.quota(), algorithm);
            shorter.map_or(Cow::Borrowed(policy), |shorter| Cow::Owned(shorter.tracking_usage_as(policy)))
        }
        _ => Cow::Borrowed(policy),
    }
}
