//! The timed loop, the same for every service.

use std::convert::Infallible;
use std::future::poll_fn;
use std::hint::black_box;
use std::ops::AddAssign;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tower::Service;

use crate::scenario::{Clients, KeySource};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Neither 200 nor 429: the limiter is set up wrongly.
    pub(crate) other: u64,
}

impl Answers {
    pub(crate) fn count(&mut self, status: StatusCode) {
        match status {
            StatusCode::OK => self.allowed += 1,
            StatusCode::TOO_MANY_REQUESTS => self.denied += 1,
            _ => self.other += 1,
        }
    }
}

impl AddAssign for Answers {
    fn add_assign(&mut self, more: Answers) {
        self.allowed += more.allowed;
        self.denied += more.denied;
        self.other += more.other;
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) clients: u32,
    /// Requests per thread.
    pub(crate) requests: u64,
    pub(crate) threads: usize,
    /// The number of the run. Each has another order of clients.
    pub(crate) round: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// From the start of the first thread to the end of the last.
    pub(crate) wall: Duration,
    pub(crate) answers: Answers,
}

pub(crate) trait Subject {
    /// Sends one untimed request per client, so that the state of each exists. Returns the header
    /// fields of the first answer.
    fn warm(&self, clients: u32) -> HeaderMap;

    /// Drives a clone of the service on each thread, each with its own runtime.
    fn run(&self, load: Load) -> Sample;
}

/// The loop is compiled for the concrete type: no indirection that a server would not have.
#[derive(Debug)]
pub(crate) struct Prepared<S> {
    service: S,
    key: KeySource,
}

impl<S, B> Prepared<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
{
    pub(crate) fn boxed(service: S, key: KeySource) -> Box<dyn Subject>
    where
        B: 'static,
    {
        Box::new(Prepared { service, key })
    }
}

impl<S, B> Subject for Prepared<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
{
    fn warm(&self, clients: u32) -> HeaderMap {
        let mut service = self.service.clone();
        runtime().block_on(async {
            let mut first = None;
            for client in 0..clients {
                let response = send(&mut service, self.key.request(client)).await;
                first.get_or_insert_with(|| response.into_parts().0.headers);
            }
            first.unwrap_or_default()
        })
    }

    fn run(&self, load: Load) -> Sample {
        let barrier = &Barrier::new(load.threads);
        let key = self.key;
        let runs: Vec<(Instant, Instant, Answers)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..load.threads)
                .map(|thread| {
                    let mut service = self.service.clone();
                    let seed = load.round << 8 | thread as u64;
                    scope.spawn(move || {
                        let runtime = runtime();
                        let clients = Clients::new(seed, load.clients);
                        barrier.wait();
                        let start = now();
                        let answers = runtime.block_on(drive(&mut service, key, clients, load.requests));
                        (start, now(), answers)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a service panicked")).collect()
        });
        let start = runs.iter().map(|run| run.0).min().expect("at least one thread");
        let end = runs.iter().map(|run| run.1).max().expect("at least one thread");
        let mut answers = Answers::default();
        runs.iter().for_each(|run| answers += run.2);
        Sample { wall: end - start, answers }
    }
}

async fn drive<S, B>(service: &mut S, key: KeySource, mut clients: Clients, requests: u64) -> Answers
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut answers = Answers::default();
    for _ in 0..requests {
        let response = black_box(send(service, key.request(clients.draw())).await);
        answers.count(response.status());
    }
    answers
}

async fn send<S, B>(service: &mut S, request: Request<Body>) -> Response<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let Ok(()) = poll_fn(|context| service.poll_ready(context)).await;
    let Ok(response) = service.call(request).await;
    response
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime of one thread")
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time; nothing here decides by it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
