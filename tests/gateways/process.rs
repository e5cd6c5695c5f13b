//! A gateway that streams answers and charges each unit, of which tests start four and kill one.

mod journal;
mod plan;

use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use http::HeaderMap;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_stream::{StreamExt, iter};
use tollgate::extract::header;
use tollgate::store::Settled;
use tollgate::{Charge, Head, Outcome, PolicyExt, RateLimitLayer, Reason, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_tests::{Claims, serve};

use journal::Journal;
use plan::{Plan, policies, slots};

/// `NODES PREFIX JOURNAL TTL` prints the address, and the offset of the clock of Redis with its
/// error. The time to live is in milliseconds. Serves until its input ends.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [nodes, prefix, path, ttl] = words else { panic!("what is {words:?}?") };
    let (offset, error) = journal::measure(nodes.split(',').next().unwrap_or_default()).await?;
    let journal = Arc::new(Journal::new(path, offset)?);
    let builder = RedisStore::builder(&format!("redis-cluster://{nodes}")).prefix(&**prefix);
    // A busy machine is no outage.
    let store = builder.response_timeout(Duration::from_secs(10)).connect().await?;
    let claims = Claims::route(&store);
    let (store, ttl) = (store.fail_closed(), Duration::from_millis(ttl.parse()?));
    let mut app = Router::new();
    for (n, policy) in policies().into_iter().enumerate() {
        let path = format!("/{}", policy.name());
        let rule = policy.by(header("x-user")).reserve(|head: &Head<'_>| plan(head.headers()).estimate);
        let observed = Arc::clone(&journal);
        let rules = [rule, slots(ttl).by(header("x-user"))];
        let layer = RateLimitLayer::new(rules).store(store.clone()).observe(move |decision| {
            if decision.outcome() == Outcome::Settled {
                observed.write(format_args!("corrected {n}"));
            }
        });
        app = app.route(&path, get(answer).layer(layer));
    }
    let app = app.layer(from_fn_with_state(Arc::clone(&journal), record)).with_state(journal);
    println!("{} {offset} {error}", serve(app.route("/claims", claims)).await);
    spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn plan(headers: &HeaderMap) -> Plan {
    let text = headers.get("x-plan").and_then(|plan| plan.to_str().ok());
    text.and_then(|text| text.parse().ok()).expect("each client sends a plan")
}

/// Records each request before it is decided, and its refusal.
async fn record(State(journal): State<Arc<Journal>>, mut request: Request, next: Next) -> Response {
    let plan = plan(request.headers());
    let id = plan.id;
    journal.write(format_args!("ask {id} {}", plan.estimate));
    request.extensions_mut().insert(plan);
    let response = next.run(request).await;
    if response.status() == Reason::QuotaExceeded.status() {
        journal.write(format_args!("denied {id}"));
    } else if !response.status().is_success() {
        journal.write(format_args!("failed {id} {}", response.status()));
    }
    response
}

async fn answer(
    State(journal): State<Arc<Journal>>,
    Extension(plan): Extension<Plan>,
    charge: Charge,
) -> impl IntoResponse {
    journal.write(format_args!("granted {}", plan.id));
    let production = Arc::new(Production { plan, charge, journal, is_settled: AtomicBool::new(false) });
    let each = move |n| {
        let production = Arc::clone(&production);
        async move { production.next(n).await }
    };
    Sse::new(iter(0..).then(each).map_while(|event| event))
}

/// A stream that is produced.
struct Production {
    plan: Plan,
    charge: Charge,
    journal: Arc<Journal>,
    is_settled: AtomicBool,
}

impl Production {
    /// The next unit after `n`. `None` at the end.
    async fn next(&self, n: u64) -> Option<io::Result<Event>> {
        sleep(Duration::from_millis(self.plan.pace)).await;
        if n == self.plan.fails_after {
            return Some(Err(io::Error::other("the upstream has failed")));
        }
        if n == self.plan.units || !self.has_room().await {
            self.settle(n).await;
            return None;
        }
        self.journal.write(format_args!("chunk {}", self.plan.id));
        self.charge.used(1);
        Some(Ok(Event::default().data(n.to_string())))
    }

    /// Extends the charge before it is used up.
    async fn has_room(&self) -> bool {
        if self.charge.used_so_far() < self.charge.reserved() {
            return true;
        }
        let Plan { id, extension, .. } = self.plan;
        self.journal.write(format_args!("ask {id} {extension}"));
        let extended = self.charge.extend(extension).await;
        match &extended {
            Ok(()) => self.journal.write(format_args!("granted {id}")),
            Err(denial) if denial.reason() == Reason::QuotaExceeded => {
                self.journal.write(format_args!("denied {id}"));
            }
            Err(denial) => self.journal.write(format_args!("failed {id} {denial}")),
        }
        extended.is_ok()
    }

    async fn settle(&self, total: u64) {
        let id = self.plan.id;
        self.is_settled.store(true, Ordering::Relaxed);
        self.journal.write(format_args!("settling {id} {total}"));
        for _ in 0..1 + u8::from(self.plan.settles_twice) {
            let Settled { charged, debt, forgiven, .. } = self.charge.settle(total).await;
            self.journal.write(format_args!("settled {id} {charged} {debt} {forgiven}"));
        }
    }
}

impl Drop for Production {
    fn drop(&mut self) {
        if !*self.is_settled.get_mut() {
            self.journal.write(format_args!("dropped {} {}", self.plan.id, self.charge.used_so_far()));
        }
    }
}
