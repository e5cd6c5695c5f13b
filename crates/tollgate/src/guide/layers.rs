//! Where among the other layers the limit stands.
//!
//! A layer limits what is inside of it. Put it **outside of what is dear** (handlers, a log-in that asks a database) and
//! **inside of what its answers need**: a 429 that is made outside of the CORS layer cannot be read by a browser, and one
//! outside of the trace layer is in no log.
//!
//! # Which comes first
//!
//! Two ways of writing the same stack have opposite orders. With `ServiceBuilder` the first layer is the outermost;
//! with calls of axum's `Router::layer` the last one is, since each wraps what is there already.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{Quota, RateLimitLayer};
//! use tower::ServiceBuilder;
//! use tower_http::cors::CorsLayer;
//!
//! let (cors, limit) = (CorsLayer::permissive(), RateLimitLayer::per_ip(Quota::per_minute(100)));
//! # let (cors_again, limit_again) = (cors.clone(), limit.clone());
//!
//! // A request meets CORS, then the limit, then the handler; in both.
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(ServiceBuilder::new().layer(cors).layer(limit));
//!
//! # let (cors, limit) = (cors_again, limit_again);
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limit).layer(cors);
//! ```
//!
//! # A stack
//!
//! From the outside in:
//!
//! | layer | outside of the limit | inside of it | put it |
//! |---|---|---|---|
//! | trace, metrics | sees refusals | sees what passes | outside |
//! | CORS | scripts can read refusals; it answers preflights by itself, and they cost nothing | a refusal reaches no script, and preflights are charged unless they are [exempt](crate::exempt::cors_preflight) | outside |
//! | compression | compresses refusals too, which are short | compresses what passes | either |
//! | a timeout | counts the time that a leaky bucket makes a request wait, and the time that the store takes | limits the work alone | inside, as a rule |
//! | authentication | the rule can be by user | is spared the requests that are refused | see [below](#before-and-after-authentication) |
//! | load shed, buffer, concurrency limit | one caller can take all the places | a caller gets no more places than his rate allows; what is shed has been charged | inside |
//! | a limit on bodies | refuses a body before the request is charged, where the length is told | the request is charged first | either: the limit reads only [what is left of a body that it refuses](crate::RateLimitLayer::drain_body) |
//!
//! A browser hides from scripts of other origins what it was not told to show: CORS has to name the fields that they are to
//! read. Of gRPC-Web they are [others](super::grpc#browsers).
//!
//! ```
//! use axum::body::Body;
//! use axum::{Router, routing::get};
//! use http::{HeaderName, Request, StatusCode};
//! use tollgate::extract::global;
//! use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_http::cors::{Any, CorsLayer};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let told = ["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static);
//! let cors = CorsLayer::new().allow_origin(Any).expose_headers(told);
//! let limit = || RateLimitLayer::new([Policy::new("one", Quota::per_minute(1)).by(global())]);
//!
//! let routes = || Router::new().route("/", get(|| async { "hello" }));
//! let right: Router = routes().layer(ServiceBuilder::new().layer(cors.clone()).layer(limit()));
//! let wrong: Router = routes().layer(ServiceBuilder::new().layer(limit()).layer(cors));
//!
//! for (app, readable) in [(right, true), (wrong, false)] {
//!     let request = || Request::get("/").header("origin", "https://app.example").body(Body::empty()).unwrap();
//!     app.clone().oneshot(request()).await.unwrap();
//!     let refused = app.oneshot(request()).await.unwrap();
//!     assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
//!     assert_eq!(refused.headers().contains_key("access-control-allow-origin"), readable);
//! }
//! # }
//! ```
//!
//! # What a layer of axum covers
//!
//! A layer covers only what was there when it was added. All that one layer covers shares its
//! counts: a `Router` clones the layer for each route, and clones of a
//! [`RateLimitLayer`](crate::RateLimitLayer) count together.
//!
//! | added with | limits |
//! |---|---|
//! | `Router::route_layer` | the routes above it, also for methods that they do not have; no fallback and no unknown path |
//! | `Router::layer` | the routes above it, a fallback set above it, and unknown paths unless a fallback is set below it |
//! | `MethodRouter::layer`, `get(..).layer(..)` | one path |
//! | `.route_layer` on a part, then `Router::merge` or `Router::nest` | the routes of the part |
//! | `.layer` on a part, then `Router::nest` | the routes of the part, and the part's own fallback |
//! | `.layer` on a part, then `Router::merge` | the routes of the part, **and the unknown paths of the whole app** |
//! | `ServiceBuilder::new().layer(limit).service(router)` | everything; but no route has matched yet, and [`matched_path`] knows none |
//!
//! **Limit a part of an app with `route_layer`.** `merge` takes over the part's answer to unknown
//! paths, with the layer around it. (It does not if the app, or a part merged later, has an answer
//! of its own.) A few requests for `/favicon.ico` then use up the limit of a merged log-in.
//!
//! Scanners ask for unknown paths. With `route_layer` they are not limited: if your fallback is
//! expensive, add a second, generous layer around the whole app.
//!
//! ```
//! use axum::body::Body;
//! use axum::{Router, routing::get};
//! use http::Request;
//! use tollgate::extract::global;
//! use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! async fn is_limited(app: &Router, method: &str, path: &str) -> bool {
//!     let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
//!     app.clone().oneshot(request).await.unwrap().headers().contains_key("ratelimit")
//! }
//! let limit = RateLimitLayer::new([Policy::new("all", Quota::per_minute(100)).by(global())]);
//! let routes = Router::new().route("/log-in", get(|| async { "limited" }));
//! let health = Router::new().route("/health", get(|| async { "not limited" }));
//!
//! // What to write for a part of an app.
//! let app = health.clone().merge(routes.clone().route_layer(limit.clone()));
//! assert!(is_limited(&app, "GET", "/log-in").await);
//! assert!(is_limited(&app, "POST", "/log-in").await, "405, and charged");
//! assert!(!is_limited(&app, "GET", "/health").await);
//! assert!(!is_limited(&app, "GET", "/favicon.ico").await);
//!
//! // The mistake.
//! let app = health.merge(routes.clone().layer(limit.clone()));
//! assert!(is_limited(&app, "GET", "/favicon.ico").await);
//!
//! // A layer around a whole app. What is added below it is not limited.
//! let app = routes.clone().layer(limit.clone()).route("/health", get(|| async { "not limited" }));
//! assert!(is_limited(&app, "GET", "/log-in").await);
//! assert!(is_limited(&app, "GET", "/favicon.ico").await);
//! assert!(!is_limited(&app, "GET", "/health").await);
//!
//! let app = routes.layer(limit).fallback(|| async { "set below" });
//! assert!(!is_limited(&app, "GET", "/favicon.ico").await);
//! # }
//! ```
//!
//! # Before and after authentication
//!
//! Limit twice: by address outside of it, since to try passwords has to cost something, and by user inside of it. Two
//! layers are two decisions: what the outer one has charged stays charged when the inner one refuses. Rules of one layer are
//! all or nothing, but all of them stand in one place.
//!
//! ```
//! use axum::middleware::{Next, from_fn};
//! use axum::{Router, extract::Request, response::Response, routing::get};
//! use http::StatusCode;
//! use tollgate::extract::extension;
//! use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
//! use tower::ServiceBuilder;
//!
//! #[derive(Clone)]
//! struct User { id: u64 }
//!
//! async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
//!     // Stands for yours.
//!     let id = request.headers().get("x-user").and_then(|id| id.to_str().ok()?.parse().ok());
//!     request.extensions_mut().insert(User { id: id.ok_or(StatusCode::UNAUTHORIZED)? });
//!     Ok(next.run(request).await)
//! }
//!
//! let by_user = Policy::new("user", Quota::per_hour(1_000)).by(extension(|user: &User| user.id));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(
//!     ServiceBuilder::new()
//!         .layer(RateLimitLayer::per_ip(Quota::per_minute(300)))
//!         .layer(from_fn(authenticate))
//!         .layer(RateLimitLayer::new([by_user])),
//! );
//! ```
//!
//! Both tell of themselves in the response: the items of [`Fields::Ietf`](crate::Fields::Ietf) are appended to one
//! another. Of [`Fields::XEpoch`](crate::Fields::XEpoch) and [`Fields::XDelta`](crate::Fields::XDelta), which have room for
//! one rule, those of the inner layer stand. Give the policies different names.
//!
//! # Load shed, buffer and concurrency limit
//!
//! Tower asks a service whether it is ready before it gives it a request, and a limited service is ready when what is inside
//! of it is. So in one `ServiceBuilder` a full concurrency limit inside of the rate limit makes requests wait *before* they are
//! looked at, those that will be refused among them. A load shed in between ends that:
//!
//! ```
//! # use axum::{Router, error_handling::HandleErrorLayer, routing::get};
//! # use http::StatusCode;
//! # use tollgate::{Quota, RateLimitLayer};
//! # use tower::{BoxError, ServiceBuilder, limit::GlobalConcurrencyLimitLayer, load_shed::LoadShedLayer};
//! let layers = ServiceBuilder::new()
//!     .layer(RateLimitLayer::per_ip(Quota::per_minute(100)))
//!     // What is shed is an error of tower's, which axum wants to be answered.
//!     .layer(HandleErrorLayer::new(async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE))
//!     .layer(LoadShedLayer::new())
//!     .layer(GlobalConcurrencyLimitLayer::new(100));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layers);
//! ```
//!
//! (`GlobalConcurrencyLimitLayer`, since a `Router` applies the layer to each route, and `ConcurrencyLimitLayer` would count
//! each for itself.)
//!
//! - A **buffer** outside of the limit queues requests before they are looked at; inside it queues only what passes. A
//!   service that is not `Clone` needs one inside: a limited service has to be.
//! - A request that a **[leaky bucket](crate::Algorithm::LeakyBucket)** delays waits inside of the rate limit. A concurrency
//!   limit outside counts it as under way. So does one inside in the same `ServiceBuilder`: the place that made it ready is
//!   kept for the request. Where sleepers are not to take up places, put a buffer between the two, of whose places they then
//!   take one each; or add the concurrency limit to the `Router` first, in a `.layer()` of its own: axum asks what is inside
//!   of that only when the request comes to it.
//!
//! ```
//! # use std::sync::Arc;
//! # use std::task::Poll;
//! # use std::time::Duration;
//! # use axum::{Router, body::Body, error_handling::HandleErrorLayer, routing::get};
//! # use http::{Request, StatusCode};
//! # use tokio::sync::Semaphore;
//! # use tollgate::extract::global;
//! # use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
//! # use tower::buffer::BufferLayer;
//! # use tower::{BoxError, ServiceBuilder, ServiceExt, limit::GlobalConcurrencyLimitLayer};
//! # type Layers = (GlobalConcurrencyLimitLayer, RateLimitLayer);
//! # async fn places_taken_by_a_sleeper(app: impl Fn(Layers) -> Router) -> usize {
//! #     let an_hour = Algorithm::LeakyBucket { max_wait: Duration::from_secs(3_600) };
//! #     let even = Policy::new("even", Quota::per_minute(1)).with_algorithm(an_hour).by(global());
//! #     let places = Arc::new(Semaphore::new(3));
//! #     let app = app((GlobalConcurrencyLimitLayer::with_semaphore(places.clone()), RateLimitLayer::new([even])));
//! #     let request = || Request::get("/").body(Body::empty()).unwrap();
//! #     app.clone().oneshot(request()).await.unwrap();
//! #     let mut asleep = Box::pin(app.oneshot(request()));
//! #     assert!(std::future::poll_fn(|cx| Poll::Ready(asleep.as_mut().poll(cx).is_pending())).await);
//! #     3 - places.available_permits()
//! # }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! # let routes = || Router::new().route("/", get(|| async { "hello" }));
//! # let outside = |(places, even): Layers| routes().layer(ServiceBuilder::new().layer(places).layer(even));
//! # assert_eq!(places_taken_by_a_sleeper(outside).await, 1);
//! # let inside = |(places, even): Layers| routes().layer(ServiceBuilder::new().layer(even).layer(places));
//! # assert_eq!(places_taken_by_a_sleeper(inside).await, 1);
//! # let buffered = |(places, even): Layers| {
//! #     let error = HandleErrorLayer::new(async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE);
//! #     routes().layer(ServiceBuilder::new().layer(error).layer(even).layer(BufferLayer::new(8)).layer(places))
//! # };
//! # assert_eq!(places_taken_by_a_sleeper(buffered).await, 0);
//! # let apart = |(places, even): Layers| {
//! let app: Router = routes()
//!     .layer(places)
//!     .layer(even);
//! # app };
//! # assert_eq!(places_taken_by_a_sleeper(apart).await, 0);
//! # }
//! ```
//!
//! # What outer layers can know
//!
//! Each refusal carries its [`Denial`](crate::Denial) in the extensions of the response, which tells it from a 429 of the
//! handler's. With [`expose_verdict`](crate::RateLimitLayer::expose_verdict), responses that passed carry a
//! [`Report`](crate::Report).
//!
//! ```
//! use http::Response;
//! use tollgate::Denial;
//!
//! fn count<B>(response: &Response<B>) {
//!     if let Some(denial) = response.extensions().get::<Denial>() {
//!         // Such as "quota exceeded: burst, daily"; `denial.violated()` has the names one by one.
//!         println!("{denial}");
//!     }
//! }
//! ```
//!
//! # What a layer does not see
//!
//! It charges a request when it comes: not the messages of a WebSocket that it opened, not the items of a stream. Those are
//! asked for one by one of a [`Limiter`](crate::Limiter); that of the layer itself is
//! [`RateLimitLayer::limiter`](crate::RateLimitLayer::limiter).
//!
#![cfg_attr(feature = "axum", doc = "[`matched_path`]: crate::extract::matched_path()")]
#![cfg_attr(not(feature = "axum"), doc = "[`matched_path`]: crate::extract")]
