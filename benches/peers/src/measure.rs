//! The timed loop, the same for every limiter.

use std::convert::Infallible;
use std::future::poll_fn;
use std::hint::black_box;
use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tower::Service;

use crate::scenario::{Clients, KeySource, address};

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
    /// Each round has another order of clients.
    pub(crate) round: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// From the start of the first thread to the end of the last.
    pub(crate) wall: Duration,
    pub(crate) answers: Answers,
}

/// What the timed loop does for a client.
pub(crate) trait Ask: Clone + Send + 'static {
    type Answer: Answer;

    fn ask(&mut self, client: u32) -> impl Future<Output = Self::Answer>;
}

pub(crate) trait Answer {
    fn status(&self) -> StatusCode;

    /// The names of the header fields.
    fn fields(&self) -> Vec<String>;
}

/// A request through a service, which the loop builds.
#[derive(Clone, Debug)]
pub(crate) struct Layered<S> {
    pub(crate) service: S,
    pub(crate) key: KeySource,
}

impl<S, B> Ask for Layered<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
{
    type Answer = Response<B>;

    async fn ask(&mut self, client: u32) -> Response<B> {
        let request = self.key.request(client);
        let Ok(()) = poll_fn(|context| self.service.poll_ready(context)).await;
        let Ok(response) = self.service.call(request).await;
        response
    }
}

impl<B> Answer for Response<B> {
    fn status(&self) -> StatusCode {
        Response::status(self)
    }

    fn fields(&self) -> Vec<String> {
        self.headers().keys().map(ToString::to_string).collect()
    }
}

/// A limiter without a layer: it is asked with the address of a client, and says whether it passes.
#[derive(Clone, Debug)]
pub(crate) struct Primitive<F>(pub(crate) F);

impl<F: Fn(IpAddr) -> bool + Clone + Send + 'static> Ask for Primitive<F> {
    type Answer = bool;

    async fn ask(&mut self, client: u32) -> bool {
        (self.0)(address(client).into())
    }
}

impl Answer for bool {
    fn status(&self) -> StatusCode {
        if *self { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS }
    }

    fn fields(&self) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) trait Subject {
    /// Asks once for each client, untimed, so that the state of each exists. Returns the header
    /// fields of the first answer.
    fn warm(&self, clients: u32) -> Vec<String>;

    /// Drives a clone on each thread, each with its own runtime.
    fn run(&self, load: Load) -> Sample;
}

/// The loop is compiled for the concrete type: no indirection that a server would not have.
impl<A: Ask> Subject for A {
    fn warm(&self, clients: u32) -> Vec<String> {
        let mut asked = self.clone();
        runtime().block_on(async {
            let mut first = None;
            for client in 0..clients {
                let answer = asked.ask(client).await;
                first.get_or_insert_with(|| answer.fields());
            }
            first.unwrap_or_default()
        })
    }

    fn run(&self, load: Load) -> Sample {
        let barrier = &Barrier::new(load.threads);
        let runs: Vec<(Instant, Instant, Answers)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..load.threads)
                .map(|thread| {
                    let asked = self.clone();
                    let seed = load.round << 8 | thread as u64;
                    scope.spawn(move || {
                        let runtime = runtime();
                        let clients = Clients::new(seed, load.clients);
                        barrier.wait();
                        let start = now();
                        let answers = runtime.block_on(drive(asked, clients, load.requests));
                        (start, now(), answers)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a limiter panicked")).collect()
        });
        let start = runs.iter().map(|run| run.0).min().expect("at least one thread");
        let end = runs.iter().map(|run| run.1).max().expect("at least one thread");
        let mut answers = Answers::default();
        runs.iter().for_each(|run| answers += run.2);
        Sample { wall: end - start, answers }
    }
}

async fn drive(mut asked: impl Ask, mut clients: Clients, requests: u64) -> Answers {
    let mut answers = Answers::default();
    for _ in 0..requests {
        let answer = black_box(asked.ask(clients.draw()).await);
        answers.count(answer.status());
    }
    answers
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime of one thread")
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time; nothing here decides by it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
