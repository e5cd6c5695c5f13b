//! A server whose rules are in a file, of which a test starts four.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Router, routing::get};
use http::HeaderValue;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::task::spawn_blocking;
use tollgate::config::Registry;
use tollgate::{Denial, Head, RateLimitLayer, Report, StoreExt, Wait};
use tollgate_redis::RedisStore;
use tollgate_tests::serve;

/// `URL RULES JOURNAL` prints the address. Serves until its input ends. The log is the error output
/// of the process.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [url, rules, journal] = words else { panic!("what is {words:?}?") };
    tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).init();
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let journal = Arc::new(File::create(journal)?);

    let cost = |head: &Head<'_>| number(head, "x-cost").unwrap_or(1);
    let file = Registry::new().cost("cost", cost).cost("nothing", |_| 0).open(rules)?;
    let store = RedisStore::builder(url).connect().await?.fail_closed();
    let layer = RateLimitLayer::try_new(file.rules())?.store(store).expose_report().metrics();
    let watcher = Arc::new(file.watch(&layer));

    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(layer)
        .layer(from_fn_with_state(journal, write_down))
        .route("/metrics", get(async move || metrics.render()))
        .route("/status", get(async move || format!("{:?}", watcher.status())));
    println!("{}", serve(app).await);
    spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn number(head: &Head<'_>, name: &str) -> Option<u64> {
    head.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// Writes down each decision, as `sent received cost granted`, and for each rule `name limit
/// remaining wait stamp`. The answer carries the number of the edit, which is the limit of the rule
/// `edit`.
async fn write_down(State(journal): State<Arc<File>>, request: Request, next: Next) -> Response {
    let cost = number(&Head::from(&request), "x-cost").unwrap_or(1);
    let sent = micros();
    let mut response = next.run(request).await;
    let received = micros();
    let denied = response.extensions().get::<Denial>().map(Denial::report);
    let (report, granted) = match (denied, response.extensions().get::<Report>()) {
        (Some(report), _) => (report, 0),
        (None, Some(report)) => (report, 1),
        (None, None) => return response,
    };
    let mut line = format!("{sent} {received} {cost} {granted}");
    for (policy, status) in report.iter() {
        let wait = match status.wait() {
            Wait::None => 0,
            Wait::For(wait) => u64::try_from(wait.as_micros()).unwrap_or(u64::MAX),
            Wait::Never => u64::MAX,
        };
        let (name, limit, stamp) = (policy.name(), policy.quota().limit(), status.stamp().micros());
        line += &format!(" {name} {limit} {} {wait} {stamp}", status.remaining());
    }
    let edit = report.get("edit").map_or(0, |(policy, _)| policy.quota().limit());
    response.headers_mut().insert("x-edit", HeaderValue::from(edit));
    line.push('\n');
    // One call for each line, so that the lines of two threads do not mix.
    (&*journal).write_all(line.as_bytes()).expect("the journal is written");
    response
}

/// The clock that all processes and Redis share.
#[expect(clippy::disallowed_methods, reason = "it is no clock of a decision")]
fn micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(since_epoch.as_micros()).expect("a time before the year 584,000")
}
