//! Recipes for limits in the rest of an application.
//!
//! - [The application's JSON error](#the-applications-json-error)
//! - [One store for many layers](#one-store-for-many-layers)
//! - [Health checks](#health-checks)
//! - [reqwest](#reqwest)
//! - [utoipa](#utoipa)
//! - [Tests](#tests)
//! - [A limit in the shadow](#a-limit-in-the-shadow)
//!
//! # The application's JSON error
//!
//! Convert a [`Denial`](crate::Denial) into your error type. Layers then
//! [answer](crate::RateLimitLayer::answer) with it, and handlers that ask a limiter use `?`. Take
//! the status from the denial, because not each refusal is a 429. A layer adds `Retry-After` to the
//! answer unless it is there, and the fields. The answer of a handler has only what the error type
//! writes, so the type carries the wait.
//!
//! ```
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! # #[cfg(feature = "axum")] #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::{Body, to_bytes}, http::Request, tower::ServiceExt};
//! // In an axum program, `http` is also `axum::http`.
//! use axum::response::{IntoResponse, Response};
//! use axum::{Router, routing::get};
//! use http::StatusCode;
//! use http::header::{CONTENT_TYPE, RETRY_AFTER};
//! use tollgate::extract::header;
//! use tollgate::{Denial, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! struct AppError { status: StatusCode, message: String, retry_after: Option<u64> }
//!
//! impl From<Denial> for AppError {
//!     fn from(denial: Denial) -> AppError {
//!         AppError {
//!             status: denial.status(),
//!             // For example "quota exceeded: api".
//!             message: denial.to_string(),
//!             retry_after: denial.retry_after_seconds(),
//!         }
//!     }
//! }
//!
//! impl IntoResponse for AppError {
//!     fn into_response(self) -> Response {
//!         // Or `axum::Json`.
//!         let json = format!("{{\"error\":{:?}}}", self.message);
//!         let mut response = (self.status, [(CONTENT_TYPE, "application/json")], json).into_response();
//!         if let Some(seconds) = self.retry_after {
//!             response.headers_mut().insert(RETRY_AFTER, seconds.into());
//!         }
//!         response
//!     }
//! }
//!
//! let rule = Policy::new("api", Quota::per_hour(1)).by(header("x-api-key"));
//! let limit = RateLimitLayer::new(rule).answer(|_, denial| AppError::from(denial.clone()));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limit);
//! # let get = async |name: &str| {
//! #     let request = Request::get("/").header(name, "a").body(Body::empty()).unwrap();
//! #     let response = app.clone().oneshot(request).await.unwrap();
//! #     let (status, waits) = (response.status().as_u16(), response.headers().contains_key("retry-after"));
//! #     (status, waits, to_bytes(response.into_body(), 1_000).await.unwrap())
//! # };
//! # assert_eq!(get("x-api-key").await, (200, false, "hello".into()));
//! # assert_eq!(get("x-api-key").await, (429, true, "{\"error\":\"quota exceeded: api\"}".into()));
//! # assert_eq!(get("x-other").await.0, 400);
//! # let limiter = tollgate::Limiter::new([Policy::new("mails", Quota::per_hour(1))]);
//! # let mail = async || -> Result<(), AppError> {
//! #     let _permit = limiter.check(&tollgate::Key::from("a"), 1).await?;
//! #     Ok(())
//! # };
//! # assert!(mail().await.is_ok());
//! # let refused = mail().await.into_response();
//! # assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"3600".parse().unwrap()));
//! # }
//! ```
//!
//! # One store for many layers
//!
//! Clones of a store share its memory and its cap, or its connections to Redis. Policies with
//! different names count separately. Layers with the same policy count together.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::Body, http::Request, tollgate::extract::PeerAddr, tower::ServiceExt};
//! use axum::{Router, routing::get};
//! use tollgate::extract::PeerIp;
//! use tollgate::{MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! let store = MemoryStore::builder().max_keys(100_000).build();
//! let limit = |name: &str, quota| RateLimitLayer::new(Policy::new(name, quota).by(PeerIp::new())).store(store.clone());
//!
//! let search = Router::new().route("/search", get(|| async {})).route_layer(limit("search", Quota::per_minute(1)));
//! let export = Router::new().route("/export", get(|| async {})).route_layer(limit("export", Quota::per_day(1)));
//! let app = search.merge(export).layer(limit("address", Quota::per_minute(4)));
//! # let get = async |path: &str| {
//! #     let request = Request::get(path).extension(PeerAddr(([192, 0, 2, 1], 4_000).into()));
//! #     app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
//! # };
//! # assert_eq!([get("/search").await, get("/search").await, get("/export").await], [200, 429, 200]);
//! # assert_eq!([get("/other").await, get("/other").await, store.keys() as u16], [404, 429, 3]);
//! # }
//! ```
//!
//! # Health checks
//!
//! Add the route below the layer. Then it needs no key, and no decision is made for it. If the
//! layer stands outside of the router, exempt the path instead.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::Body, http::Request, tower::ServiceExt};
//! use axum::{Router, routing::get};
//! use tollgate::extract::PeerIp;
//! use tollgate::{Head, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! let limit = RateLimitLayer::per_ip(Quota::per_minute(100));
//! let below = Router::new().route("/", get(|| async {})).layer(limit).route("/health", get(|| async {}));
//!
//! let rule = Policy::new("default", Quota::per_minute(100)).by(PeerIp::new());
//! let exempt = RateLimitLayer::new(rule.exempt(|head: &Head<'_>| head.uri().path() == "/health"));
//! # let exempt = Router::new().route("/health", get(|| async {})).route("/", get(|| async {})).layer(exempt);
//! # for app in [below, exempt] {
//! #     for (path, status) in [("/health", 200), ("/", 500)] {
//! #         let request = Request::get(path).body(Body::empty()).unwrap();
//! #         assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status, "no peer address");
//! #     }
//! # }
//! # }
//! ```
//!
//! # reqwest
//!
//! A `reqwest::Client` is a Tower service over `reqwest::Request`, so a
//! [`CallLimitLayer`](crate::calls::CallLimitLayer) keeps it within the limit of another API. A
//! leaky bucket spaces the requests to each host. A request that would wait too long is not sent.
//! The repository has this as a program, `examples/reqwest.rs`.
//!
//! ```
//! # mod reqwest {
//! #     use {std::convert::Infallible, std::future::{Ready, ready}, std::task::{Context, Poll}};
//! #     #[derive(Clone)] pub struct Client;
//! #     impl Client { pub fn new() -> Client { Client } }
//! #     pub struct Request(pub Url);
//! #     impl Request { pub fn url(&self) -> &Url { &self.0 } }
//! #     pub struct Url;
//! #     impl Url { pub fn host_str(&self) -> Option<&str> { Some("api.example.com") } }
//! #     impl tower::Service<Request> for Client {
//! #         type Response = (); type Error = Infallible; type Future = Ready<Result<(), Infallible>>;
//! #         fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
//! #         fn call(&mut self, _: Request) -> Self::Future { ready(Ok(())) }
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use tower::ServiceExt;
//! use std::time::Duration;
//! use reqwest::{Client, Request};
//! use tollgate::calls::{CallLimitError, CallLimitLayer};
//! use tollgate::{Algorithm, Key, Limiter, Policy, Quota};
//! use tower::ServiceBuilder;
//!
//! let spaced = Policy::new("spaced", Quota::per_second(50))
//!     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_millis(30) });
//! let by_host = |request: &Request| request.url().host_str().map(Key::from);
//! let limiter = Limiter::new([spaced]);
//! # let time = tollgate::ManualClock::new(tollgate::Timestamp::from_micros(1_000_000));
//! # let limiter = limiter.store(tollgate::MemoryStore::builder().clock(&time).build());
//! let client = ServiceBuilder::new().layer(CallLimitLayer::new(limiter, by_host)).service(Client::new());
//! # let calls: Vec<_> = (0..9).map(|_| tokio::spawn(client.clone().oneshot(Request(reqwest::Url)))).collect();
//! # let mut refused = 0;
//! # for call in calls { refused += u32::from(matches!(call.await.unwrap(), Err(CallLimitError::Denied(_)))); }
//! # assert_eq!(refused, 7);
//! # }
//! ```
//!
//! # utoipa
//!
//! Declare the answer in each operation, or in a
//! [response of its own](https://docs.rs/utoipa/latest/utoipa/derive.ToResponse.html):
//!
//! ```text
//! #[derive(ToSchema)]
//! struct Problem { title: String, status: u16 }
//!
//! #[utoipa::path(
//!     get,
//!     path = "/",
//!     responses(
//!         (status = 200, description = "a greeting", body = String),
//!         (
//!             status = 429,
//!             description = "the quota is used up",
//!             body = Problem,
//!             content_type = "application/problem+json",
//!             headers(("retry-after" = u64, description = "seconds until the request would pass")),
//!         ),
//!     ),
//! )]
//! async fn hello() -> &'static str { "hello" }
//! ```
//!
//! # Tests
//!
//! Let the function that builds the application take the store. A test passes one whose clock it
//! moves. [Testing](super::super::testing) has more.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::time::Duration;
//! use axum::{Router, body::Body, routing::get};
//! use http::Request;
//! use tollgate::extract::header;
//! use tollgate::store::{NeverFails, Store};
//! use tollgate::{ManualClock, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Timestamp};
//! use tower::ServiceExt;
//!
//! fn app<S: Store<Error: NeverFails>>(store: S) -> Router {
//!     let rule = Policy::new("api", Quota::per_minute(1)).by(header("x-api-key"));
//!     Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(rule).store(store))
//! }
//!
//! let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let app = app(MemoryStore::builder().clock(&time).build());
//! let status = async || {
//!     let request = Request::get("/").header("x-api-key", "a").body(Body::empty()).unwrap();
//!     app.clone().oneshot(request).await.unwrap().status()
//! };
//! assert_eq!(status().await, 200);
//! assert_eq!(status().await, 429);
//! time.advance(Duration::from_secs(60));
//! assert_eq!(status().await, 200);
//! # }
//! ```
//!
//! # A limit in the shadow
//!
//! Before a new limit refuses requests, count what it would refuse. A middleware asks a second
//! limiter and ignores the answer, and an observer counts it. [`metrics`](crate::guide::watching)
//! of that limiter show it by its policy's name. A store in Redis is asked once more for each
//! request.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::Body, tower::ServiceExt};
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//! use axum::middleware::{Next, from_fn_with_state};
//! use axum::{Router, extract::{Request, State}, response::Response, routing::get};
//! use tollgate::extract::header;
//! use tollgate::{Head, Outcome, Policy, PolicyExt, Quota, RequestLimiter};
//!
//! async fn shadow(State(planned): State<RequestLimiter>, request: Request, next: Next) -> Response {
//!     let (parts, body) = request.into_parts();
//!     let _ignored = planned.check(&Head::from(&parts)).await;
//!     next.run(Request::from_parts(parts, body)).await
//! }
//!
//! let refused = Arc::new(AtomicU64::new(0));
//! let count = Arc::clone(&refused);
//! let planned = RequestLimiter::new(Policy::new("planned", Quota::per_hour(2)).by(header("x-api-key")))
//!     .observe(move |decision| {
//!         if decision.outcome() == Outcome::Denied {
//!             count.fetch_add(1, Ordering::Relaxed);
//!         }
//!     });
//! let app: Router = Router::new().route("/", get(|| async {})).layer(from_fn_with_state(planned, shadow));
//! # for _ in 0..5 {
//! #     let request = Request::get("/").header("x-api-key", "a").body(Body::empty()).unwrap();
//! #     assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 200);
//! # }
//! # assert_eq!(refused.load(Ordering::Relaxed), 3);
//! # }
//! ```
