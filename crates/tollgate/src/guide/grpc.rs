//! The answers to gRPC and Connect clients, and where the layer stands in a server of tonic.
//!
//! A gRPC client reads an HTTP 429 as `UNAVAILABLE`, and many retry that at once. So a call gets
//! HTTP 200 with the gRPC status in the headers. The content type of the request decides, so one
//! layer serves HTTP, gRPC and gRPC-Web on one port.
//! [`Denial::response_to`](crate::Denial::response_to) lists the headers. A refused call looks like
//! this:
//!
//! ```text
//! HTTP/2 200
//! content-type: application/grpc
//! grpc-status: 8
//! grpc-message: quota exceeded: api
//! grpc-retry-pushback-ms: 1953
//! grpc-status-details-bin: (RetryInfo, QuotaFailure)
//! ratelimit-policy: "api";q=5;w=10
//! ratelimit: "api";r=0;t=2
//! ```
//!
//! This needs no feature:
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response};
//! use tollgate::extract::global;
//! use tollgate::{ManualClock, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Timestamp};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let limit = RateLimitLayer::new([Policy::new("api", Quota::per_minute(1)).by(global())]);
//! # let limit = limit.store(MemoryStore::builder().clock(&time).build());
//! let service = ServiceBuilder::new()
//!     .layer(limit)
//!     .service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
//! service.clone().oneshot(Request::default()).await.unwrap();
//!
//! let call = Request::post("/helloworld.Greeter/SayHello").header("content-type", "application/grpc");
//! let refused = service.clone().oneshot(call.body(String::new()).unwrap()).await.unwrap();
//! assert_eq!((refused.status().as_u16(), &refused.headers()["grpc-status"]), (200, &"8".parse().unwrap()));
//! assert_eq!(refused.headers()["grpc-message"], "quota exceeded: api");
//! assert_eq!(refused.headers()["grpc-retry-pushback-ms"], "60000");
//!
//! let refused = service.oneshot(Request::default()).await.unwrap();
//! assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"60".parse().unwrap()));
//! # }
//! ```
//!
//! The feature `tonic` adds what needs tonic's types: the peer's address under tonic's own server,
//! `tonic::Status` from a [`Denial`](crate::Denial), and a name for a service inside the layer.
//!
//! # Connect
//!
//! A client of the [Connect protocol](https://connectrpc.com/docs/protocol) reads errors in JSON,
//! with the details of gRPC. A unary call is recognized by its header `Connect-Protocol-Version`,
//! or as a `GET` by `connect=v1` in its query; a stream by its content type
//! `application/connect+…`. The client sees `resource_exhausted` with `RetryInfo` and
//! `QuotaFailure`:
//!
//! ```
//! # use std::convert::Infallible;
//! # use http::{Request, Response};
//! # use tollgate::extract::global;
//! # use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
//! # use tower::{ServiceBuilder, ServiceExt};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let limit = RateLimitLayer::new([Policy::new("api", Quota::per_minute(1)).by(global())]);
//! # let service = ServiceBuilder::new()
//! #     .layer(limit)
//! #     .service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
//! # service.clone().oneshot(Request::default()).await.unwrap();
//! let call = Request::post("/helloworld.Greeter/SayHello")
//!     .header("content-type", "application/json")
//!     .header("connect-protocol-version", "1");
//! let refused = service.oneshot(call.body("{}".to_owned()).unwrap()).await.unwrap();
//! assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"60".parse().unwrap()));
//! # }
//! ```
//!
//! # Where to put it
//!
//! | write | limits |
//! |---|---|
//! | `Server::builder().layer(limit).add_service(..)` | all services of the server |
//! | `.add_service(ServiceBuilder::new().layer(limit).service(greeter))` | one service (feature `tonic`) |
//! | `Routes::from(router).add_service(..).into_axum_router().layer(limit)` | HTTP and gRPC on one port, by one quota |
//! | a clone of one layer on a server of axum and on one of tonic | two ports, by one quota |
//!
//! The first call of `Server::layer` adds the outermost layer, as with `ServiceBuilder` and unlike
//! axum's `Router::layer`. The limit may be on either side of tonic-web's `GrpcWebLayer`. Put an
//! interceptor that finds the user outside a rule by user:
//!
//! ```
//! # #[cfg(feature = "tonic")] {
//! use tollgate::extract::extension;
//! use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
//! use tonic::service::InterceptorLayer;
//! use tonic::transport::Server;
//! use tonic::{Request, Status};
//!
//! #[derive(Clone)]
//! struct User { id: u64 }
//!
//! fn authenticate(mut request: Request<()>) -> Result<Request<()>, Status> {
//!     // Your authentication goes here.
//!     let id = request.metadata().get("x-user").and_then(|id| id.to_str().ok()?.parse().ok());
//!     let id = id.ok_or_else(|| Status::unauthenticated("x-user is missing"))?;
//!     request.extensions_mut().insert(User { id });
//!     Ok(request)
//! }
//!
//! let by_user = Policy::new("user", Quota::per_hour(1_000)).by(extension(|user: &User| user.id));
//! let server = Server::builder()
//!     .layer(RateLimitLayer::per_ip(Quota::per_second(50).burst(100)))
//!     .layer(InterceptorLayer::new(authenticate))
//!     .layer(RateLimitLayer::new([by_user]));
//! # }
//! ```
//!
//! # Keys and costs
//!
//! Metadata are headers, so [`header`](crate::extract::header) reads them. The path names the
//! called method. Callers can invent paths, so a key by method should list the known ones:
//!
//! ```
//! use tollgate::extract::PeerIp;
//! use tollgate::{Head, Key, Policy, PolicyExt, Quota};
//!
//! let method = |head: &Head<'_>| {
//!     let known = ["/reports.Reports/Get", "/reports.Reports/Make"];
//!     Some(Key::from(known.into_iter().find(|known| *known == head.uri().path()).unwrap_or("(other)")))
//! };
//! let rule = Policy::new("reports", Quota::per_minute(100))
//!     .by((PeerIp::new(), method))
//!     .cost(|head: &Head<'_>| if head.uri().path() == "/reports.Reports/Make" { 10 } else { 1 });
//! ```
//!
//! # Streams
//!
//! A call is charged once, when it begins, for any number of messages. To charge each message, ask
//! a [`Limiter`](crate::Limiter). With the feature `tonic`, `?` converts a denial to a status:
//!
//! ```
//! # #[cfg(feature = "tonic")]
//! async fn before_each_message(limiter: &tollgate::Limiter, user: u64) -> Result<(), tonic::Status> {
//!     let permit = limiter.check(&tollgate::Key::from(user), 1).await?;
//!     // Zero, unless a rule is a leaky bucket.
//!     tokio::time::sleep(permit.delay()).await;
//!     Ok(())
//! }
//! ```
//!
//! # Clients
//!
//! A client whose retry policy lists `RESOURCE_EXHAUSTED` obeys `grpc-retry-pushback-ms` by itself:
//! it waits that long, and does not retry if the value is -1. Other clients read that header or the
//! `RetryInfo`:
//!
//! ```
//! # #[cfg(feature = "tonic")] {
//! use std::time::Duration;
//!
//! /// Returns `None` if waiting does not help.
//! fn wait(status: &tonic::Status) -> Option<Duration> {
//!     let pushback = status.metadata().get("grpc-retry-pushback-ms")?.to_str().ok()?;
//!     Some(Duration::from_millis(pushback.parse().ok()?))
//! }
//! # use tollgate::{Key, Limiter, Policy, Quota};
//! # let limiter = Limiter::new([Policy::new("one", Quota::per_day(1))]);
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # let mut ask = |cost| runtime.block_on(limiter.check(&Key::global(), cost));
//! # assert!(wait(&ask(2).unwrap_err().into()).is_none());
//! # assert!(ask(1).is_ok());
//! # assert!(wait(&ask(1).unwrap_err().into()).is_some_and(|wait| wait > Duration::from_secs(80_000)));
//! # }
//! ```
//!
//! # Browsers
//!
//! The status of a refusal is in the headers, also for gRPC-Web, where the status of a successful
//! call is in the body. A page of another origin can read only the headers that CORS exposes.
//! Without them its client finds no status at all.
//!
//! So put a CORS layer [outside the limit](super::layers#a-stack) that exposes `grpc-status`,
//! `grpc-message`, `grpc-status-details-bin` and `grpc-retry-pushback-ms`.
//!
//! # In logs and metrics
//!
//! A refused gRPC call or Connect stream is an HTTP 200, so metrics by HTTP status miss it. The
//! caller chooses the content type: even where there is no gRPC, a POST can use it to make its
//! refusals look like successes. Count by the [`Denial`](crate::Denial) in the response's
//! extensions, which each refusal carries. Or answer all requests as HTTP: `.answer(|_, denial|
//! denial.response())`.
//!
//! # An answer of your own
//!
//! The closure of [`RateLimitLayer::answer`](crate::RateLimitLayer::answer) also answers gRPC and
//! Connect calls. Return [`denial.response_to(head)`](crate::Denial::response_to) for calls that
//! should get the default answer.
