//! The Tower layer, its service, and their future and body.

#[cfg(feature = "tracing")]
mod charged_twice;
mod deadline;
mod decide;
mod future;
mod jitter;
#[cfg(feature = "config")]
mod rules_in_force;
mod service;
#[cfg(test)]
mod strangers;
#[cfg(feature = "tonic")]
mod tonic;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use tollgate_core::{Policy, Quota, Share, Store, Unsent};
use tower_layer::Layer;

use crate::answer::IntoAnswer;
use crate::answer::drain::Bound;
use crate::answer::fields::{FieldWriter, Fields};
use crate::answer::options::AnswerOptions;
use crate::decision::Denial;
use crate::decision::observe::Decision;
use crate::errors::{SetupError, or_panic};
use crate::extract::{Head, PeerIp};
use crate::limiter::RequestLimiter;
use crate::limiter::live::Live;
use crate::memory::MemoryStore;
use crate::rule::PolicyExt;
use crate::store::NeverFails;

#[cfg(feature = "config")]
#[cfg_attr(docsrs, doc(cfg(feature = "config")))]
pub use self::rules_in_force::RulesInForce;
pub use self::service::RateLimit;
pub use crate::answer::ResponseBody;
pub use crate::limiter::changes::{RuleChange, RuleChanges};
pub use crate::rule::{IntoLimit, IntoRules, Rules};

/// Limits the requests that reach a service, by one or several rules that are decided together.
///
/// ```
/// use tollgate::extract::{PeerIp, header};
/// use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
///
/// let simple = RateLimitLayer::per_ip(Quota::per_minute(100));
///
/// let several = RateLimitLayer::new([
///     Policy::new("burst", Quota::per_second(10).burst(20)).by(PeerIp::new()),
///     Policy::new("daily", Quota::per_day(5_000)).by(header("x-api-key")),
/// ]);
/// ```
///
/// Works with any `tower::Service` over `http::Request` and `http::Response`: axum's
/// `Router::layer`, tonic's `Server::builder().layer(..)`, a `tower::ServiceBuilder`. The service
/// must be `Clone`: a request that waits for a leaky bucket or for a server takes it along.
///
/// The request's body must be a `Body` that is `Send + 'static`, because the rest of a refused one
/// is [read in a task](RateLimitLayer::drain_body).
///
/// All services that a layer or its clones make share their state and their rules, also after
/// [`replace`](RateLimitLayer::replace). A method that returns a changed layer leaves earlier
/// clones and services as they are.
///
/// # Panics
/// A request that a [leaky bucket](crate::Algorithm::LeakyBucket) delays uses tokio's timer.
/// Without a tokio runtime with a timer it panics. Nothing else of the layer needs a runtime; a
/// store may, and [`timeout`](crate::StoreExt::timeout) does.
#[doc(alias("GovernorLayer", "throttle"))]
#[must_use]
pub struct RateLimitLayer<S = MemoryStore> {
    live: Arc<Live<S>>,
}

impl RateLimitLayer {
    /// Limits each peer address to `quota`, on a [`MemoryStore`] of its own.
    ///
    /// The policy's name is `default`, so two such layers on one [store](RateLimitLayer::store)
    /// count together. To count separately, name the policies with [`RateLimitLayer::new`]. Give
    /// each service that shares a Redis its own prefix.
    ///
    /// The server has to provide the peer's address: see [`PeerIp`], also for servers behind a
    /// proxy.
    pub fn per_ip(quota: Quota) -> RateLimitLayer {
        RateLimitLayer::new(Policy::new("default", quota).by(PeerIp::new()))
    }

    /// Enforces one rule, or decides several together, on a [`MemoryStore`] of their own.
    ///
    /// # Panics
    /// If [`RateLimitLayer::try_new`] would return an error.
    #[track_caller]
    pub fn new(rules: impl IntoRules) -> RateLimitLayer {
        RateLimitLayer::from(RequestLimiter::new(rules))
    }

    /// [`RateLimitLayer::new`] for rules that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError`] if there are none, or if two have one name.
    pub fn try_new(rules: impl IntoRules) -> Result<RateLimitLayer, SetupError> {
        RequestLimiter::try_new(rules).map(RateLimitLayer::from)
    }
}

impl<S> RateLimitLayer<S> {
    /// Sets the store: one with another cap or clock, one that several layers share, or one that a
    /// fleet shares. A store that can fail needs a [failure policy](crate::failure) first;
    /// otherwise this does not compile.
    ///
    /// Layers on one store share the state of policies with the same name, algorithm and window.
    /// Give policies different names to count separately.
    ///
    /// # Panics
    /// If [`RateLimitLayer::try_store`] would return an error.
    #[track_caller]
    pub fn store<T>(self, store: T) -> RateLimitLayer<T>
    where
        T: Store,
        T::Error: NeverFails,
    {
        or_panic(self.try_store(store))
    }

    /// [`RateLimitLayer::store`] for rules or stores that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::Unsupported`] if the store cannot enforce a policy: it may not know the
    /// algorithm.
    pub fn try_store<T>(self, store: T) -> Result<RateLimitLayer<T>, SetupError>
    where
        T: Store,
        T::Error: NeverFails,
    {
        Ok(RateLimitLayer { live: Live::new(self.live.load().try_store(store)?) })
    }

    /// Sets the fields that report quotas to clients; [`Fields::Ietf`] by default.
    pub fn fields(self, fields: Fields) -> RateLimitLayer<S> {
        self.answering(|answers| answers.fields = FieldWriter::new(fields))
    }

    /// Answers refused requests with a closure instead of [`Denial::response_to`], gRPC calls as
    /// well.
    ///
    /// The layer adds to its answer the fields, the [`Denial`] in the extensions, and how long to
    /// wait unless the answer says it: `Retry-After`, or `grpc-retry-pushback-ms` for gRPC. The
    /// status is that of the answer, so set it: [`Denial::status`] is that of the default answer.
    ///
    /// The closure returns any [`Response`](http::Response) with a body of `Bytes`:
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{Denial, Head, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).answer(|_: &Head<'_>, denial:
    /// &Denial| {
    ///     let mut response = Response::new("slow down, please\n".to_owned());
    ///     *response.status_mut() = denial.status();
    ///     response
    /// });
    /// ```
    ///
    /// With the feature `axum` it may return whatever a handler may, such as the error type of the
    /// application:
    ///
    /// ```
    /// # #[cfg(feature = "axum")] {
    /// use axum::response::{IntoResponse, Response};
    /// use http::StatusCode;
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// struct AppError { status: StatusCode, message: String }
    ///
    /// impl IntoResponse for AppError {
    ///     fn into_response(self) -> Response {
    ///         (self.status, self.message).into_response()
    ///     }
    /// }
    ///
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).answer(|_, denial| AppError {
    ///     // Not each refusal is a 429: a request without a key is a 400.
    ///     status: denial.status(),
    ///     message: denial.to_string(),
    /// });
    /// # }
    /// ```
    ///
    /// gRPC clients cannot read such an answer. If there are gRPC services behind the layer, start
    /// from the default answer to the request:
    ///
    /// ```
    /// # use tollgate::{Denial, Head, Quota, RateLimitLayer};
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).answer(|head: &Head<'_>, denial: &Denial| {
    ///     let mut response = denial.response_to(head);
    ///     if !response.headers().contains_key("grpc-status") {
    ///         *response.body_mut() = "slow down, please\n".into();
    ///     }
    ///     response
    /// });
    /// ```
    #[doc(alias("error_handler", "on_denied"))]
    pub fn answer<A: IntoAnswer>(
        self,
        answer: impl Fn(&Head<'_>, &Denial) -> A + Send + Sync + 'static,
    ) -> RateLimitLayer<S> {
        let answer = move |head: &Head<'_>, denial: &Denial| answer(head, denial).into_answer();
        self.answering(|answers| answers.answer = Some(Arc::new(answer)))
    }

    /// Sets how much of the rest of a refused request's body is read: at most `bytes`, and for at
    /// most `time` from the refusal. By default 1 MiB and 1 s.
    ///
    /// A client that is still sending its body when the connection closes may lose the answer; a
    /// reverse proxy then answers 502 and may take the server for dead. So the answer is sent at
    /// once, and meanwhile a task reads the body and discards it. A body that has ended costs
    /// nothing.
    ///
    /// Beyond the bound the body is dropped. Over HTTP/2 the server then resets the stream, after
    /// the answer. Over HTTP/1.1 it closes the connection:
    ///
    /// - An answer to a body that is longer than `bytes`, or of unknown length, has `Connection:
    ///   close`. After `bytes` the server stops reading and keeps the connection open until `time`
    ///   is over, so that the client can read the answer.
    /// - A client that sent `Expect: 100-continue` gets the answer instead of the 100, with
    ///   `Connection: close`. Its body is not read.
    ///
    /// `bytes` or `time` of zero switches this off. Do that for a layer in front of a client: no
    /// connection waits for its bodies.
    ///
    /// The task needs a tokio runtime with a timer, such as axum, tonic and hyper-util have.
    /// Without a runtime the body is dropped; in a runtime without a timer the task panics, which
    /// affects nothing else.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let uploads = RateLimitLayer::per_ip(Quota::per_minute(10)).drain_body(8 << 20, Duration::from_secs(5));
    /// ```
    pub fn drain_body(self, bytes: u64, time: Duration) -> RateLimitLayer<S> {
        self.answering(|answers| answers.drain = Bound { bytes, time })
    }

    /// Names a header in which callers say how long they wait, in whole milliseconds:
    /// `x-request-timeout: 300`.
    ///
    /// A [leaky bucket](crate::Algorithm::LeakyBucket) would delay a request beyond that for
    /// nothing: its caller has left when its turn comes. Such a request is denied at once and takes
    /// no place in the queue. The headers `grpc-timeout` and `connect-timeout-ms` of gRPC and
    /// Connect count without this. Of several headers the shortest time counts, and of a time its
    /// first three digits; a value that is no number of milliseconds is ignored. Waits for
    /// [slots](crate::Rule::wait_at_most) end with it too. Other rules are not affected.
    ///
    /// # Panics
    /// If `name` is not a header name.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
    ///
    /// let queue = Policy::new("queue", Quota::per_second(1))
    ///     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(10) });
    /// let layer = RateLimitLayer::new([queue.by(PeerIp::new())]).deadline_header("x-request-timeout");
    /// ```
    #[track_caller]
    pub fn deadline_header(self, name: &str) -> RateLimitLayer<S> {
        let Ok(name) = HeaderName::try_from(name) else { panic!("{name:?} is not a header name") };
        self.answering(|answers| answers.deadline = Some(name))
    }

    /// Lengthens the wait of each refused request by a random part of it, up to this share: with a
    /// fifth, a wait of 10 s becomes 10 s to 12 s. Clients that were refused together then do not
    /// return at the same moment. No wait becomes shorter.
    ///
    /// It concerns what clients read: `Retry-After` and `t` of the [`Fields`], the [`Denial`], and
    /// the retry of gRPC. Observers see the exact wait. The one second of a [slot](crate::Slot)
    /// stays.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer, Share};
    ///
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).retry_jitter(Share::new(1, 5));
    /// ```
    pub fn retry_jitter(self, share: Share) -> RateLimitLayer<S> {
        self.answering(|answers| answers.retry_jitter = Some(share))
    }

    /// Adds the [`Report`](crate::Report) to the extensions of requests that pass, for handlers,
    /// and of their responses, for outer layers. Off by default, because it allocates. With the
    /// feature `axum` a handler takes it as an argument.
    ///
    /// The report is empty if no rule applied or if the layer is switched off. If several layers
    /// expose theirs, a handler finds the report of the innermost, and the response has that of the
    /// outermost.
    pub fn expose_report(self) -> RateLimitLayer<S> {
        self.answering(|answers| answers.expose_report = true)
    }

    /// Calls `observe` for each decision: once for each rule of a request. Several observers may be
    /// added.
    ///
    /// It runs within the request, so it must not block. Without an observer, a request costs
    /// nothing more. Looks, refunds and resets decide nothing.
    ///
    /// If one rule refuses a request, the others did not charge it:
    /// [`Outcome::NotCharged`](crate::Outcome::NotCharged). So each rule counts each request once.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tollgate::{Outcome, Quota, RateLimitLayer};
    ///
    /// let refused = Arc::new(AtomicU64::new(0));
    /// let count = Arc::clone(&refused);
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).observe(move |decision| {
    ///     if decision.outcome() == Outcome::Denied {
    ///         count.fetch_add(decision.units(), Ordering::Relaxed);
    ///     }
    /// });
    /// ```
    pub fn observe(self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> RateLimitLayer<S> {
        RateLimitLayer { live: Live::new(self.live.load().observe(observe)) }
    }

    /// Counts decisions and units as metrics, and measures how long requests wait for the store:
    /// see [the names](crate::guide::watching#metrics).
    ///
    /// Registers its handles now, so install an exporter first. Call this once: a second call
    /// counts each decision twice. The module [`metrics`](crate::metrics) adds those of stores.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).metrics();
    /// ```
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn metrics(self) -> RateLimitLayer<S> {
        RateLimitLayer { live: Live::new(self.live.load().metrics()) }
    }

    /// Switches the rules off or on: those of this layer, of its clones and its
    /// [limiter](RateLimitLayer::limiter), and of all services that they made, also of those that
    /// run.
    ///
    /// While they are off, every request passes, and nothing is charged. A
    /// [look](crate::RequestLimiter::look) reports no policies, and a
    /// [charge](crate::Permit::charge) of a permit is of no units. Observers and metrics see
    /// nothing of it. Callers that wait pass, one after another. Charges and slots of running
    /// requests end as they would have. Rules that are [replaced](RateLimitLayer::replace)
    /// meanwhile, also by a file that is [watched](crate::watch), apply once they are switched on.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100));
    /// layer.set_enabled(std::env::var("LIMITS").is_ok_and(|limits| limits == "on"));
    /// assert!(!layer.is_enabled());
    /// ```
    pub fn set_enabled(&self, enabled: bool) {
        self.live.set_enabled(enabled);
    }

    /// Returns whether the rules are [switched on](RateLimitLayer::set_enabled), as they are at
    /// first.
    pub fn is_enabled(&self) -> bool {
        self.live.is_enabled()
    }

    /// Returns the limiter of this layer, to ask directly: it has the same rules, also when they
    /// are [replaced](RateLimitLayer::replace), and the same state. Call this after
    /// [`store`](RateLimitLayer::store).
    pub fn limiter(&self) -> RequestLimiter<S> {
        RequestLimiter { live: Arc::clone(&self.live) }
    }

    /// A layer that answers otherwise, with rules of its own. Its clones and services keep theirs.
    fn answering(self, change: impl FnOnce(&mut AnswerOptions)) -> RateLimitLayer<S> {
        RateLimitLayer { live: Live::new(self.live.load().answering(change)) }
    }
}

impl<S> RateLimitLayer<S>
where
    S: Store,
    S::Error: NeverFails,
{
    /// Replaces the rules of this layer, of its clones, and of all services that they made, also of
    /// those that run. The next request is decided by the new rules.
    ///
    /// - A request is decided and finished by one set of rules: so are its charges and its slots.
    /// - Keys keep what they have used, in the store. Windows, rings and logs keep their units; a
    ///   bucket keeps the time until it is full, so a raised limit refills it faster. If its new
    ///   version is full sooner than that, it begins with a bucket used up, and no caller waits
    ///   longer than for that: see
    ///   [`PolicyNumbers::version_burst`](tollgate_core::PolicyNumbers::version_burst). A leaky
    ///   bucket keeps its queue.
    /// - A new window or another algorithm counts from zero. The result says which rules do.
    /// - Another zone or anchor of a calendar applies when the running windows end. The result says
    ///   when that is.
    /// - Another [time of blocks](crate::Rule::block_after), or another [time to
    ///   live](crate::Policy::with_ttl), is for new blocks and slots. Those that run end when they
    ///   would have.
    /// - [Leases](crate::StoreExt::leased) of an earlier quota are not spent any more.
    ///   [Denials](crate::StoreExt::deny_cache) of an earlier quota are forgotten.
    /// - Callers that wait for a slot, or in [`until_ready`], ask again by the new rules: the first
    ///   for a key at once, and those behind it when they get a turn. They keep their order, and
    ///   what they have waited counts.
    /// - All options of the layer stay: the store, the fields, the observers, the metrics.
    ///
    /// If two threads replace rules at once, the sets follow each other. A fleet replaces the rules
    /// of each process. Meanwhile a window admits at most the larger limit, and a bucket at most
    /// both bursts and what the faster one refills.
    ///
    /// # Errors
    /// The errors of [`RateLimitLayer::try_new`] and [`RateLimitLayer::try_store`]. The rules stay
    /// as they are then.
    ///
    /// [`until_ready`]: crate::RequestLimiter::until_ready
    pub fn replace(&self, rules: impl IntoRules) -> Result<RuleChanges, SetupError> {
        self.live.replace(rules)
    }

    /// Ends this layer, its clones and all services that they made, when the process stops: see
    /// [`Limiter::close`](crate::Limiter::close). Requests that come later are answered 503.
    ///
    /// Await it after the server has ended its requests, or after the time that they get: [the
    /// chapter on requests in flight](crate::guide::in_flight#when-a-server-stops) has a whole
    /// server.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100));
    /// // Serve with a clone of `layer`. At the end:
    /// let unsent = layer.close(Duration::from_secs(2)).await;
    /// if !unsent.is_nothing() {
    ///     eprintln!("{unsent}");
    /// }
    /// # }
    /// ```
    pub async fn close(&self, limit: Duration) -> Unsent {
        self.live.close(limit).await
    }

    /// Returns the version of the rules: 1 at first, and one more with each
    /// [replacement](RateLimitLayer::replace) and each [switch](RateLimitLayer::set_enabled).
    pub fn version(&self) -> u64 {
        self.live.version()
    }
}

/// Answers as the layer whose [limiter](RateLimitLayer::limiter) it is, if it is that of a layer.
impl<S> From<RequestLimiter<S>> for RateLimitLayer<S> {
    fn from(limiter: RequestLimiter<S>) -> RateLimitLayer<S> {
        RateLimitLayer { live: limiter.live }
    }
}

impl<S, Svc> Layer<Svc> for RateLimitLayer<S> {
    type Service = RateLimit<Svc, S>;

    fn layer(&self, inner: Svc) -> RateLimit<Svc, S> {
        RateLimit::new(inner, Arc::clone(&self.live))
    }
}

impl<S> Clone for RateLimitLayer<S> {
    fn clone(&self) -> RateLimitLayer<S> {
        RateLimitLayer { live: Arc::clone(&self.live) }
    }
}

impl<S> From<&RateLimitLayer<S>> for RequestLimiter<S> {
    fn from(layer: &RateLimitLayer<S>) -> RequestLimiter<S> {
        layer.limiter()
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimitLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("limiter", &self.limiter()).finish_non_exhaustive()
    }
}
