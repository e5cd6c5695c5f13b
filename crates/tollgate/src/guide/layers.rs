//! Where to put the limit among other layers.
//!
//! A layer limits the services inside it. Put it **outside expensive layers**, such as handlers or
//! a log-in that asks a database. Put it **inside the layers that its answers need**: browsers
//! cannot read a 429 from outside the CORS layer, and the trace layer does not log one from
//! outside.
//!
//! # Order
//!
//! There are two ways to write a stack, and their orders are opposite. With `ServiceBuilder` the
//! first layer is the outermost. With calls of axum's `Router::layer` the last one is the
//! outermost, because each call wraps the layers before it.
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
//! // In both, a request passes CORS, then the limit, then the handler.
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
//! | layer | outside the limit | inside it | put it |
//! |---|---|---|---|
//! | trace, metrics | sees refusals | sees only requests that pass | outside |
//! | CORS | scripts can read refusals; the layer answers preflights itself, so they cost nothing | scripts cannot read refusals, and preflights are charged unless they are [exempt](crate::exempt::cors_preflight) | outside |
//! | compression | also compresses refusals, which are short | compresses only responses that pass | either |
//! | a timeout | also counts the delay of a leaky bucket and the time of the store | counts the work alone | usually inside |
//! | authentication | the rule can be by user | does not see refused requests | see [below](#before-and-after-authentication) |
//! | load shed, buffer, concurrency limit | one caller can take all the places | a caller gets no more places than its rate allows; shed requests are charged | inside |
//! | a limit on bodies | refuses a body before the request is charged, if the length is known | the request is charged first | either: the limit reads only [what is left of a body that it refuses](crate::RateLimitLayer::drain_body) |
//!
//! Scripts of other origins can read only the header fields that the CORS layer exposes. gRPC-Web
//! needs [other fields](super::grpc#browsers).
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
//! let fields = ["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static);
//! let cors = CorsLayer::new().allow_origin(Any).expose_headers(fields);
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
//! | `Router::route_layer` | the routes above it, also for methods that they do not have; not the fallback and not unknown paths |
//! | `Router::layer` | the routes above it, a fallback set above it, and unknown paths unless a fallback is set below it |
//! | `MethodRouter::layer`, `get(..).layer(..)` | one path |
//! | `.route_layer` on a part, then `Router::merge` or `Router::nest` | the routes of the part |
//! | `.layer` on a part, then `Router::nest` | the routes of the part, and the part's own fallback |
//! | `.layer` on a part, then `Router::merge` | the routes of the part, **and the unknown paths of the whole app** |
//! | `ServiceBuilder::new().layer(limit).service(router)` | everything; but no route has matched yet, so with [`matched_path`] all requests share one key |
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
//! Limit twice: by address outside authentication, so that guessing passwords costs quota, and by
//! user inside it. Two layers make two decisions: if the inner one refuses, the charge of the outer
//! one stays. Rules of one layer are all or nothing, but they all stand in one place.
//! `ServiceBuilder` is from the crate `tower`. Without it, three calls of `.layer` do the same in
//! the other order: the last one is the outermost.
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
//!     // Your authentication goes here.
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
//! Both layers write their fields to the response. [`Fields::Ietf`](crate::Fields::Ietf) is a list,
//! so both have their items in it. [`Fields::XEpoch`](crate::Fields::XEpoch) and
//! [`Fields::XDelta`](crate::Fields::XDelta) have room for one rule: the fields of the inner layer
//! stay. Give the policies different names.
//!
//! # Load shed, buffer and concurrency limit
//!
//! Tower calls `poll_ready` on a service before it sends a request, and a limited service is ready
//! if the service inside it is. So a full concurrency limit inside the rate limit, in one
//! `ServiceBuilder`, makes requests wait *before* the rate limit sees them. That includes requests
//! that will be refused. A load shed in between avoids it:
//!
//! ```
//! # use axum::{Router, error_handling::HandleErrorLayer, routing::get};
//! # use http::StatusCode;
//! # use tollgate::{Quota, RateLimitLayer};
//! # use tower::{BoxError, ServiceBuilder, limit::GlobalConcurrencyLimitLayer, load_shed::LoadShedLayer};
//! let layers = ServiceBuilder::new()
//!     .layer(RateLimitLayer::per_ip(Quota::per_minute(100)))
//!     // Load shed returns an error of tower. axum requires a response.
//!     .layer(HandleErrorLayer::new(async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE))
//!     .layer(LoadShedLayer::new())
//!     .layer(GlobalConcurrencyLimitLayer::new(100));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layers);
//! ```
//!
//! Use `GlobalConcurrencyLimitLayer` here: a `Router` applies the layer to each route, and
//! `ConcurrencyLimitLayer` would count each route separately.
//!
//! - A **buffer** outside the limit queues requests before the limit sees them. Inside, it queues
//!   only requests that pass. A limited service must be `Clone`, so a service that is not needs a
//!   buffer inside the limit.
//! - A request that a **[leaky bucket](crate::Algorithm::LeakyBucket)** delays waits inside the
//!   rate limit. A concurrency limit outside counts it as in flight. So does one inside in the same
//!   `ServiceBuilder`: the request keeps the place that made the service ready.
//!
//! Two ways keep delayed requests from taking those places:
//!
//! - Put a buffer between the two limits. Delayed requests then take places of the buffer.
//! - Add the concurrency limit to the `Router` first, in a `.layer()` of its own. axum polls the
//!   service inside that only when the request arrives there:
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
//! # What outer layers can read
//!
//! Each refusal carries its [`Denial`](crate::Denial) in the extensions of the response. A 429 of
//! the handler has none. With [`expose_report`](crate::RateLimitLayer::expose_report), responses
//! that passed carry a [`Report`](crate::Report).
//!
//! ```
//! use http::Response;
//! use tollgate::Denial;
//!
//! fn count<B>(response: &Response<B>) {
//!     if let Some(denial) = response.extensions().get::<Denial>() {
//!         // For example "quota exceeded: burst, daily". `denial.violated()` returns the names.
//!         println!("{denial}");
//!     }
//! }
//! ```
//!
//! # What a layer does not see
//!
//! It charges a request when it arrives. It does not charge the messages of a WebSocket that the
//! request opened, or the items of a stream. Ask a [`Limiter`](crate::Limiter) for each of those.
//! To ask the rules of the layer by a request's head, take the
//! [`RequestLimiter`](crate::RequestLimiter) of
//! [`RateLimitLayer::limiter`](crate::RateLimitLayer::limiter).
//!
#![cfg_attr(feature = "axum", doc = "[`matched_path`]: crate::extract::matched_path()")]
#![cfg_attr(not(feature = "axum"), doc = "[`matched_path`]: crate::extract")]
