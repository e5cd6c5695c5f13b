//! Callers that send requests, and the answers that they get.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::layer::RateLimit;
use tollgate::store::BoxStore;
use tollgate::store::Source;
use tollgate::{MemoryStore, PolicyExt, RateLimitLayer, StoreExt};
use tollgate_tests::{Client, Strict, field, request, user};
use tower::{Layer, Service, ServiceExt};

use crate::faults::policy::SHARE;
use crate::faults::run::{LIMIT, policy};
use crate::faults::scene::ADA;

/// How callers reach the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    InProcess,
    /// Through an axum server.
    Sockets,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// `None` for ada. Each of the others is another user, with this number.
    pub(crate) user: Option<u32>,
    pub(crate) status: u16,
    pub(crate) by: Source,
    pub(crate) asked: Instant,
    pub(crate) took: Duration,
    /// The answer was there at the first poll, without a wait.
    pub(crate) at_once: bool,
}

/// A caller that sends requests.
pub(crate) enum Caller {
    InProcess(RateLimit<Strict, BoxStore<Infallible>>),
    Sockets(Client),
}

impl Caller {
    pub(crate) async fn new(
        layer: &RateLimitLayer<BoxStore<Infallible>>,
        server: Option<SocketAddr>,
    ) -> Caller {
        match server {
            None => Caller::InProcess(layer.layer(Strict::default())),
            Some(address) => Caller::Sockets(Client::connect(address).await),
        }
    }

    pub(crate) async fn ask(&mut self, user: Option<u32>) -> Seen {
        let name = user.map_or_else(|| ADA.to_owned(), name);
        let asked = Instant::now();
        let (status, policy, at_once) = match self {
            Caller::InProcess(service) => {
                let called = service.ready().await.expect("it is ready").call(request(&name));
                let mut called = pin!(called);
                let first = std::future::poll_fn(|cx| Poll::Ready(called.as_mut().poll(cx))).await;
                let at_once = first.is_ready();
                let response = match first {
                    Poll::Ready(response) => response,
                    Poll::Pending => called.await,
                };
                let response = response.expect("a layer fails nothing");
                let policy = field(&response, "ratelimit-policy").map(str::to_owned);
                (response.status().as_u16(), policy, at_once)
            }
            Caller::Sockets(client) => {
                let answer = client.get("/", &[&format!("x-user: {name}")]).await;
                (answer.status, answer.field("ratelimit-policy").map(str::to_owned), false)
            }
        };
        Seen { user, status, by: decided_by(policy.as_deref()), asked, took: asked.elapsed(), at_once }
    }
}

/// The fields show who decided: the quota's, the share's, or none.
fn decided_by(told: Option<&str>) -> Source {
    let share = policy().share(SHARE).expect("a share").quota().limit();
    let field = |limit: u64| format!("\"p\";q={limit};w=86400");
    match told {
        None => Source::FailurePolicy,
        Some(told) if told == field(LIMIT) => Source::Store,
        Some(told) if told == field(share) => Source::Fallback,
        Some(told) => panic!("what is {told:?}?"),
    }
}

/// The name of the user with this number.
pub(crate) fn name(user: u32) -> String {
    format!("user{user}")
}

/// The median time of a denial by a store in memory, for comparison.
pub(crate) async fn denial_in_memory() -> Duration {
    let layer = RateLimitLayer::new([policy().by(user())]).store(MemoryStore::new().boxed());
    let mut caller = Caller::new(&layer, None).await;
    let mut denials = Vec::new();
    while denials.len() < 1_000 {
        let seen = caller.ask(None).await;
        if seen.status == 429 {
            denials.push(seen.took);
        }
    }
    median(denials)
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
