//! The store itself.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bb8_redis::redis::{Cmd, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};
use tollgate_core::{
    Algorithm, Check, Clock, Grant, Key, Policy, PolicyError, Quota, Reply, Stamp, Store, Times, Timestamp,
    Verdict,
};

use crate::Error;
use crate::awaited::Awaited;
use crate::batch::Ask;
use crate::builder::RedisStoreBuilder;
use crate::caller::{Caller, Told};
use crate::commit::Commit;
use crate::link::{Link, Text};
use crate::set::spread;
use crate::wire::names::{Name, Names};
use crate::wire::numbers::Numbers;
use crate::wire::script::{Parts, Scripts};
use crate::wire::terms::Terms;

/// A store in Redis or Valkey, shared by all processes that connect to it. See the [crate's documentation](crate).
///
/// It is a handle: clones share connections.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
    /// How long those who ask by this handle wait for an answer.
    limit: Option<Duration>,
}

pub(crate) struct Inner {
    pub(crate) commit: Arc<Commit>,
}

impl RedisStore {
    /// Connects to the Redis of a URL, with the settings that suit most: short for [`RedisStore::builder`] and
    /// [`RedisStoreBuilder::connect`].
    ///
    /// | URL | connects to |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | a server; `unix:///path` to its socket |
    /// | `redis-sentinel://[user:password@]host[:port],…/master[/db]` | the master that these Sentinels name |
    /// | `redis-cluster://[user:password@]host[:port],…` | the Cluster of these nodes |
    ///
    /// With the feature `tls`, `rediss` in the place of `redis` connects by TLS. User and password are those of the servers;
    /// Sentinels that want some are told by [`RedisStoreBuilder::sentinel_credentials`].
    ///
    /// # Errors
    /// Those of [`RedisStoreBuilder::connect`]; that Redis cannot be reached is none of them.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<RedisStore, Error> {
        RedisStore::builder(url).connect().await
    }

    /// A store for the Redis of a URL.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    pub(crate) fn new(
        link: Link,
        names: Names,
        scripts: Scripts,
        clock: Option<Clock>,
        lanes: u32,
        most_waiting: usize,
    ) -> RedisStore {
        let lanes = usize::try_from(lanes).unwrap_or(usize::MAX);
        let commit = Commit::new(link, scripts, clock, names, lanes, most_waiting);
        RedisStore { inner: Arc::new(Inner { commit: Arc::new(commit) }), limit: None }
    }

    /// Asks for something, to find out what will not pass by itself.
    pub(crate) async fn try_out(&self) -> Result<(), Error> {
        let tried = self.try_commands().await;
        // First, since what a node of another kind answers to a script says less.
        self.inner.commit.link.mode().await?;
        match tried {
            Err(error) if error.is_configuration() => Err(error),
            _ => Ok(()),
        }
    }

    /// Has the server do all that buckets may ask of it.
    async fn try_commands(&self) -> Result<(), Error> {
        // Of its own: what others find at the same time is not to change what this one finds.
        let name = format!("connect {:x}", RandomState::new().hash_one(0));
        let (key, policy) = (Key::from("connect"), Policy::new(&name, Quota::per_hour(1_000)));
        // Written; added to, and its life prolonged; refused; deleted.
        for cost in [1, 1, 1_000] {
            self.acquire(&[Check::new(&policy, &key, cost)], Times::ONCE).wait().await?;
        }
        self.reset(&key, &[&policy]).wait().await?;
        // Scripts are known by now, and will be forgotten when the server starts again.
        let eval = |_: Text| {
            let mut cmd = Cmd::new();
            cmd.arg("EVAL").arg("return 1").arg(0);
            Some(cmd)
        };
        self.inner.commit.link.call(self.inner.slot(&key), &eval).await.map(drop)
    }
}

impl Inner {
    /// The slot by which checks are told apart: one for all where they can be decided together.
    fn slot(&self, key: &Key) -> u16 {
        if self.commit.link.has_slots() { self.commit.names.slot(key) } else { 0 }
    }

    pub(crate) async fn refund(&self, slot: u16, grants: Vec<(Key, Terms, Stamp)>) -> Result<(), Error> {
        let mut parts = Parts::default();
        for (_, terms, _) in &grants {
            parts.add(terms.part);
        }
        let script = self.commit.scripts.refund(parts);
        let now = self.commit.clock.as_ref().map(Clock::now);
        let write = |cmd: &mut Cmd| {
            for (key, terms, _) in &grants {
                cmd.arg(&*self.commit.names.of(key, &terms.policy));
            }
            if let Some(now) = now {
                cmd.arg(now.as_micros());
            }
            let mut numbers = Numbers::new();
            for (_, terms, stamp) in &grants {
                [terms.cost, stamp.micros(), stamp.fraction().into()]
                    .into_iter()
                    .for_each(|n| numbers.push(n));
                terms.write_refund(&mut numbers);
            }
            cmd.arg(numbers.as_bytes());
        };
        let build = |text| Some(self.commit.command(script, text, grants.len(), write));
        let _beside = self.commit.beside();
        self.commit.link.call(slot, &build).await.map(drop)
    }
}

impl Store for RedisStore {
    type Error = Error;
    type Acquire = Acquire;
    type Done = Done;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Error>, Acquire> {
        if let [check] = set {
            // Most sets are of one check, and this is short for what follows.
            if check.key.is_empty() {
                return Reply::Now(Err(empty_key()));
            }
            let checks = SmallVec::from_slice(&[(check.policy, check.key, u64::from(check.cost))]);
            return self.asked(self.inner.slot(check.key), Ask { checks, times }, None);
        }
        if set.is_empty() {
            return Reply::Now(Ok(Verdict::new(times.max(), Duration::ZERO, [])));
        }
        if set.iter().any(|check| check.key.is_empty()) {
            return Reply::Now(Err(empty_key()));
        }
        let (pairs, order) = pairs(set);
        let slots: Vec<u16> = pairs.iter().map(|pair| self.inner.slot(pair.key)).collect();
        if slots.windows(2).any(|two| two[0] != two[1]) {
            let legs = spread::legs(&pairs, &slots, self.inner.commit.names.log);
            let inner = Arc::clone(&self.inner);
            let answer = self
                .in_a_task(async move { spread::acquire(inner, legs, order, times).await.map(Told::from) });
            return Reply::Later(Acquire { answer, order: None });
        }
        let checks = pairs.iter().map(|pair| (pair.policy, pair.key, pair.cost)).collect();
        self.asked(slots[0], Ask { checks, times }, (order.len() != pairs.len()).then_some(order))
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        match policy.algorithm() {
            Algorithm::Gcra
            | Algorithm::LeakyBucket { .. }
            | Algorithm::FixedWindow { .. }
            | Algorithm::SlidingWindow
            | Algorithm::SlidingBuckets { .. }
            | Algorithm::SlidingLog { .. } => Ok(()),
            // One of a later version of the core, for which there is no script here.
            _ => Err(PolicyError::Unsupported),
        }
    }

    fn end_waits_after(&mut self, limit: Duration) -> bool {
        self.limit = Some(self.limit.map_or(limit, |shorter| shorter.min(limit)));
        true
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Error>, Done> {
        let mut of_slot: Vec<(u16, Vec<_>)> = Vec::new();
        for grant in grants.iter().filter(|grant| grant.units > 0 && !grant.key.is_empty()) {
            let slot = self.inner.slot(grant.key);
            let terms = Terms::new(grant.policy, u64::from(grant.units), self.inner.commit.names.log);
            let refund = (grant.key.clone(), terms, grant.stamp);
            match of_slot.iter_mut().find(|(of, _)| *of == slot) {
                Some((_, refunds)) => refunds.push(refund),
                None => of_slot.push((slot, vec![refund])),
            }
        }
        if of_slot.is_empty() {
            return Reply::Now(Ok(()));
        }
        let inner = Arc::clone(&self.inner);
        Reply::Later(Done(self.in_a_task(async move {
            let mut result = Ok(());
            for (slot, refunds) in of_slot {
                // What cannot come back to one slot must not keep it from the others.
                result = result.and(inner.refund(slot, refunds).await);
            }
            result
        })))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Error>, Done> {
        if policies.is_empty() || key.is_empty() {
            return Reply::Now(Ok(()));
        }
        let (inner, slot) = (Arc::clone(&self.inner), self.inner.slot(key));
        let names: Vec<Name> = policies.iter().map(|policy| inner.commit.names.of(key, policy)).collect();
        Reply::Later(Done(self.in_a_task(async move {
            let build = |_: Text| {
                let mut cmd = Cmd::new();
                cmd.arg("DEL");
                for name in &names {
                    cmd.arg(&**name);
                }
                Some(cmd)
            };
            let _beside = inner.commit.beside();
            inner.commit.link.call(slot, &build).await.map(|_: Value| ())
        })))
    }
}

impl RedisStore {
    /// When the time of somebody ends who asks now.
    fn until(&self) -> Option<Timestamp> {
        // Rounded up: neither the time nor the limit need be whole microseconds.
        let limit = self.limit?.saturating_add(Duration::from_micros(2));
        Some(self.inner.commit.waits.now().saturating_add(limit))
    }

    fn asked(&self, slot: u16, ask: Ask<'_>, order: Option<Order>) -> Reply<Result<Verdict, Error>, Acquire> {
        let until = self.until();
        // First: where there are no timers it panics, and nothing has been asked.
        let end = self.end_elsewhere();
        match self.inner.commit.ask(slot, ask, until) {
            Ok(answer) => Reply::Later(Acquire { answer: answer.until(end), order }),
            Err(error) => Reply::Now(Err(error)),
        }
    }

    /// The end of a wait in another runtime than that in which calls run, which may be held up while this one is not.
    fn end_elsewhere(&self) -> Option<Pin<Box<Sleep>>> {
        self.limit.filter(|_| self.is_elsewhere()).map(|limit| Box::pin(sleep(limit)))
    }

    fn is_elsewhere(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() != self.inner.commit.runtime.id())
    }

    /// Does something to its end in the runtime of the store: what takes several steps must not be left half done by a caller
    /// who leaves, nor must a connection be made by a runtime that ends.
    fn in_a_task<T: Send + 'static>(
        &self,
        what: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Awaited<T> {
        let end = self.end_elsewhere();
        let (caller, answer) = Caller::new(self.until());
        let clock = self.inner.commit.waits.clone();
        self.inner.commit.runtime.spawn(async move { caller.tell_in_time(&clock, what).await });
        Awaited::new(answer, None).until(end)
    }
}

fn empty_key() -> Error {
    Error::config("the empty key is nobody's")
}

/// A pair of policy and key, and what it costs in a set.
pub(crate) struct Pair<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) key: &'a Key,
    pub(crate) cost: u64,
}

/// Which pair each check of a set is.
pub(crate) type Order = SmallVec<[usize; 4]>;

/// Each pair once, with the sum of what it costs.
fn pairs<'a>(set: &[Check<'a>]) -> (SmallVec<[Pair<'a>; 4]>, Order) {
    let mut pairs: SmallVec<[Pair<'a>; 4]> = SmallVec::new();
    let order = set
        .iter()
        .map(|check| {
            let same = |pair: &Pair<'_>| {
                pair.policy.scope_hash() == check.policy.scope_hash()
                    && pair.key == check.key
                    && pair.policy.scope() == check.policy.scope()
            };
            let at = pairs.iter().position(same).unwrap_or_else(|| {
                pairs.push(Pair { policy: check.policy, key: check.key, cost: 0 });
                pairs.len() - 1
            });
            pairs[at].cost += u64::from(check.cost);
            at
        })
        .collect();
    (pairs, order)
}

/// A verdict over pairs, as one over the checks that name them.
pub(crate) fn in_order(verdict: Verdict, order: &[usize]) -> Verdict {
    let each = verdict.each();
    Verdict::new(verdict.times(), verdict.delay(), order.iter().filter_map(|at| each.get(*at).copied()))
}

/// A verdict of a [`RedisStore`], on its way.
///
/// Whoever lets go of it before it was sent is charged nothing. Once it was sent, it is decided, and may be charged. A set over
/// several slots of a Cluster is begun at once, and brought to its end.
pub struct Acquire {
    answer: Awaited<Told>,
    /// Which status is that of which check, where a set names a pair twice.
    order: Option<Order>,
}

impl Future for Acquire {
    type Output = Result<Verdict, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let verdict = ready!(Pin::new(&mut self.answer).poll(cx))?.into();
        Poll::Ready(Ok(match &self.order {
            Some(order) => in_order(verdict, order),
            None => verdict,
        }))
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acquire(..)")
    }
}

/// A refund or a reset of a [`RedisStore`], on its way, whether or not it is awaited.
pub struct Done(Awaited<()>);

impl Future for Done {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done(..)")
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisStore(..)")
    }
}
