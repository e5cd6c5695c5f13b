//! Recipes for limits by who calls, and by what the call costs.
//!
//! - [Log-in by address and name](#log-in-by-address-and-name)
//! - [JWT](#jwt)
//! - [WebSockets](#websockets)
//! - [GraphQL cost](#graphql-cost)
//!
//! # Log-in by address and name
//!
//! The name is in the body, so the handler asks a [`RequestLimiter`](crate::RequestLimiter). It
//! puts the name into the extensions, and both rules decide together. Only failed log-ins count:
//! each attempt is charged before the password is checked, and a right password gets a refund.
//! Anyone can use up the quota of a name, so leave it room. A log admits at most that many
//! failures in any hour. A bucket would let more guesses pass as it refills.
//!
//! ```
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! # #[cfg(feature = "axum")] #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {http::Request, tollgate::extract::PeerAddr, tower::ServiceExt};
//! use axum::response::{IntoResponse, Response};
//! use axum::{Router, extract::State, routing::post};
//! use http::{StatusCode, request::Parts};
//! use tollgate::extract::{PeerIp, extension_ref};
//! use tollgate::{Algorithm, Head, Policy, PolicyExt, Quota, RequestLimiter};
//!
//! # async fn is_right(_: &str, password: &str) -> bool { password == "secret" }
//! #[derive(Clone)]
//! struct Name(String);
//!
//! async fn log_in(State(failures): State<RequestLimiter>, mut parts: Parts, body: String) -> Response {
//!     let (name, password) = body.split_once(':').unwrap_or_default();
//!     parts.extensions.insert(Name(name.to_lowercase()));
//!     // First the charge: concurrent guesses cannot exceed the limit.
//!     let permit = match failures.check(&Head::from(&parts)).await {
//!         Ok(permit) => permit,
//!         Err(denial) => return denial.into_response(),
//!     };
//!     if !is_right(name, password).await {
//!         return StatusCode::UNAUTHORIZED.into_response();
//!     }
//!     failures.refund(permit).await;
//!     "welcome".into_response()
//! }
//!
//! let failures = |name, quota| Policy::new(name, quota).with_algorithm(Algorithm::SLIDING_LOG);
//! let failures = RequestLimiter::new([
//!     failures("address", Quota::per_hour(4)).by(PeerIp::new()),
//!     failures("name", Quota::per_hour(2)).by(extension_ref(|Name(name): &Name| name.as_str())),
//! ]);
//! let app = Router::new().route("/log-in", post(log_in)).with_state(failures);
//! # let log_in = async |last: u8, body: &str| {
//! #     let peer = PeerAddr(([192, 0, 2, last], 4_000).into());
//! #     let request = Request::post("/log-in").extension(peer).body(axum::body::Body::from(body.to_owned()));
//! #     app.clone().oneshot(request.unwrap()).await.unwrap().status().as_u16()
//! # };
//! # for _ in 0..5 { assert_eq!(log_in(1, "ada:secret").await, 200); }
//! # assert_eq!([log_in(1, "ada:a").await, log_in(2, "Ada:b").await, log_in(3, "ADA:secret").await], [401, 401, 429]);
//! # assert_eq!([log_in(1, "b:a").await, log_in(1, "c:a").await, log_in(1, "d:a").await], [401, 401, 401]);
//! # assert_eq!([log_in(1, "e:a").await, log_in(4, "e:secret").await, log_in(5, "").await], [429, 200, 400]);
//! # }
//! ```
//!
//! # JWT
//!
//! An outer layer verifies the token and leaves its claims, and the limit counts by them. **Never
//! count by the token itself:** an attacker invents tokens, and a user can have many. A limit by
//! address outside makes guessing cost quota.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::Body, http::HeaderMap, tollgate::extract::PeerAddr, tower::ServiceExt};
//! use axum::middleware::{Next, from_fn};
//! use axum::{Router, extract::Request, response::Response, routing::get};
//! use http::StatusCode;
//! use tollgate::extract::extension_ref;
//! use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
//! use tower::ServiceBuilder;
//!
//! # fn verified(headers: &HeaderMap) -> Option<Claims> {
//! #     let sub = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer valid ")?.split(' ').next()?;
//! #     Some(Claims { sub: sub.to_owned() })
//! # }
//! #[derive(Clone)]
//! struct Claims { sub: String }
//!
//! async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
//!     // Checks the signature and the expiry, with the crate that you have for that.
//!     let claims = verified(request.headers()).ok_or(StatusCode::UNAUTHORIZED)?;
//!     request.extensions_mut().insert(claims);
//!     Ok(next.run(request).await)
//! }
//!
//! let users = Policy::new("user", Quota::per_minute(2)).by(extension_ref(|claims: &Claims| claims.sub.as_str()));
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(
//!     ServiceBuilder::new()
//!         .layer(RateLimitLayer::per_ip(Quota::per_minute(300)))
//!         .layer(from_fn(authenticate))
//!         .layer(RateLimitLayer::new(users)),
//! );
//! # let get = async |token: &str| {
//! #     let request = Request::get("/").extension(PeerAddr(([192, 0, 2, 1], 4_000).into()));
//! #     let request = request.header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap();
//! #     app.clone().oneshot(request).await.unwrap().status().as_u16()
//! # };
//! # assert_eq!([get("forged").await, get("valid ada 1").await, get("valid ada 2").await], [401, 200, 200]);
//! # assert_eq!([get("valid ada 3").await, get("valid bob 1").await], [429, 200]);
//! # }
//! ```
//!
//! # WebSockets
//!
//! A layer charges the request that opens a socket, and not its messages. Ask a limiter for each
//! message. With the user as key, all sockets of a user share the quota. With
//! [`Key::join`](crate::Key::join) of user and socket, each socket has its own.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # struct WebSocket(Vec<&'static str>, Vec<String>);
//! # impl WebSocket {
//! #     async fn recv(&mut self) -> Option<&'static str> { self.0.pop() }
//! #     async fn send(&mut self, text: String) { self.1.push(text) }
//! # }
//! use tollgate::{Key, Limiter, Policy, Quota};
//!
//! // In axum `recv` and `send` return results, of `Message`.
//! async fn session(socket: &mut WebSocket, user: u64, messages: Limiter) {
//!     let key = Key::from(user);
//!     while let Some(text) = socket.recv().await {
//!         match messages.check(&key, 1).await {
//!             Ok(_permit) => socket.send(format!("you said {text}")).await,
//!             Err(denial) => {
//!                 let seconds = denial.retry_after_seconds().unwrap_or(1);
//!                 socket.send(format!("lost {text}: wait for {seconds} s")).await;
//!             }
//!         }
//!     }
//! }
//!
//! let messages = Limiter::new([Policy::new("messages", Quota::per_minute(10).burst(2))]);
//! # let mut socket = WebSocket(vec!["c", "b", "a"], Vec::new());
//! # session(&mut socket, 7, messages.clone()).await;
//! # assert_eq!(socket.1, ["you said a", "you said b", "lost c: wait for 6 s"]);
//! # }
//! ```
//!
//! To slow a sender down instead, wait with
//! [`until_ready`](crate::Limiter::until_ready). The socket is not read meanwhile, and TCP
//! holds the sender back.
//!
//! # GraphQL cost
//!
//! The cost is known once the query is parsed. Let the handler charge it before it executes the
//! query. A cost of 0 charges nothing, so it is at least 1. A cost beyond the quota's capacity gets
//! a 422, because no wait helps.
//!
//! ```
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! # #[cfg(feature = "axum")] #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::Body, http::{Request, StatusCode}, tower::ServiceExt};
//! use axum::{Extension, Router, extract::State, routing::post};
//! use tollgate::{Denial, Key, Limiter, Policy, Quota};
//!
//! # fn complexity(query: &str) -> u64 { query.split_whitespace().count() as u64 }
//! # async fn execute(_: &str) -> (String, u64) { ("{}".to_owned(), 2) }
//! #[derive(Clone)]
//! struct User { id: u64 }
//!
//! async fn graphql(
//!     State(fields): State<Limiter>,
//!     Extension(user): Extension<User>,
//!     query: String,
//! ) -> Result<String, Denial> {
//!     // At most what the query can select, by its depth and its page sizes.
//!     let estimate = complexity(&query).max(1);
//!     let mut permit = fields.check(&Key::from(user.id), estimate).await?;
//!     let (answer, used) = execute(&query).await;
//!     // What was not selected after all.
//!     fields.refund_units(&mut permit, estimate.saturating_sub(used)).await;
//!     Ok(answer)
//! }
//!
//! let fields = Limiter::new([Policy::new("fields", Quota::per_hour(10))]);
//! let app = Router::new().route("/graphql", post(graphql)).layer(Extension(User { id: 7 })).with_state(fields);
//! # let ask = async |query: &str| {
//! #     let request = Request::post("/graphql").body(Body::from(query.to_owned())).unwrap();
//! #     app.clone().oneshot(request).await.unwrap().status().as_u16()
//! # };
//! # assert_eq!([ask("a b c d e f g h i j").await, ask("a b c d e f g h").await], [200, 200]);
//! # assert_eq!([ask("a b c d e f g").await, ask("a b c d e f g h i j k").await], [429, 422]);
//! # }
//! ```
