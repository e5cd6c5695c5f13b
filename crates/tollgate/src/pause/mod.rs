//! A client that obeys the limits of others: while an origin asks for a pause, no request goes
//! there.
//!
//! A [`PauseLayer`] reads the responses of a client. All its clones share what they learned: a
//! refusal of one request pauses all requests to that origin.
//!
//! | a refusal, 429, 503, 403, or `grpc-status` 8 or 14, with | pauses for |
//! |---|---|
//! | `grpc-retry-pushback-ms` (gRFC A6) | that time; a pushback of -1 asks for no pause |
//! | `google.rpc.RetryInfo` in `grpc-status-details-bin` | its delay, without a pushback |
//! | `Retry-After` (RFC 9110, section 10.2.3), in seconds or as a date | that time |
//! | `RateLimit: "name";r=0;t=5` of the IETF draft | the longest `t` of items without rest |
//! | `RateLimit: limit=9, remaining=0, reset=5` of the draft's version 07 | the `reset` |
//! | `RateLimit-Remaining: 0` and `RateLimit-Reset: 5` of versions up to 06 | the reset |
//! | `X-RateLimit-Remaining: 0` and `X-RateLimit-Reset: 5` | the reset |
//!
//! A 403 without any of these is no refusal for a time. Fractions of a second round up. A number of
//! 10^9 or more is a time in seconds since the epoch, as GitHub and GitLab send it in a reset.
//!
//! An origin is scheme, host and port, so `http://x@API.example:80` is that of `http://api.example`.
//! At most 10,000 paused origins are remembered, each as a digest.
//!
//! A date or a time counts from the `Date` of the response, so the clocks may differ. Without that
//! field it counts from the time of this process.
//!
//! With [`PauseLayer::before_refusals`] any response that says that nothing remains is a pause.
//! An `X-RateLimit-Reset` that is a text is not read, nor are fields for each kind of request or
//! token, such as `x-ratelimit-reset-tokens`.
//!
//! ```
//! use std::time::Duration;
//! use http::{Request, Response};
//! use tollgate::calls::CallError;
//! use tollgate::pause::PauseLayer;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // Stands for a client of HTTP.
//! let busy = service_fn(async |_: Request<String>| {
//!     Response::builder().status(429).header("retry-after", "60").body(String::new())
//! });
//! let client = ServiceBuilder::new().layer(PauseLayer::new().wait_at_most(Duration::from_secs(5))).service(busy);
//!
//! let request = || Request::get("https://api.example.com/").body(String::new()).unwrap();
//! assert_eq!(client.clone().oneshot(request()).await.unwrap().status(), 429);
//! // This one is not sent.
//! let error = client.clone().oneshot(request()).await.unwrap_err();
//! assert!(matches!(error, CallError::Paused(left) if left > Duration::from_secs(59)));
//! # }
//! ```
//!
//! A gRPC client takes the layer around its channel. A generated client sends no host to the layers
//! around the channel, so give it the origin: `GreeterClient::with_origin(paused, uri)`. A refusal
//! after a message, in trailers, is not read.
//!
//! A pause ends for all requests at once, also for those of other processes. [`PauseLayer::jitter`]
//! lets them go on at random times after it. Put a
//! [`CallLimitLayer`](crate::calls::CallLimitLayer) or a [`RateLimitLayer`](crate::RateLimitLayer)
//! inside of this layer to space them.

mod fields;
mod grpc;
mod layer;
mod origin;
mod pauses;
#[cfg(test)]
mod real_servers;
mod service;
#[cfg(test)]
mod strangers;

pub use layer::PauseLayer;
pub use service::Pause;
