//! Three processes that stay within the limit of another API.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::serve;

const LIMIT: usize = 20;
const WINDOW: Duration = Duration::from_secs(4);

/// With the API's own quota, 40 requests passed a limit of 20 in the first window.
#[tokio::test]
async fn three_processes_with_a_paced_quota_stay_within_the_limit() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let (paced, as_it_is) =
        tokio::join!(most_in_a_window(&redis, "paced"), most_in_a_window(&redis, "as-it-is"));
    assert!(as_it_is > LIMIT + LIMIT / 2, "{as_it_is} requests in a window");
    assert!((LIMIT / 2..=LIMIT).contains(&paced), "{paced} requests in a window");
}

/// The most requests that arrive in any window, in two and a half of them.
async fn most_in_a_window(redis: &Server, form: &str) -> usize {
    let arrivals = Arc::<Mutex<Vec<Instant>>>::default();
    let arrived = Arc::clone(&arrivals);
    let count = move || {
        arrived.lock().unwrap().push(Instant::now());
        async { "counted" }
    };
    let api = serve(Router::new().route("/", get(count))).await.to_string();
    let (limit, seconds) = (LIMIT.to_string(), WINDOW.as_secs().to_string());
    let start = |_| -> Child {
        let mut process = Command::from(crate::process_of("programs"));
        process.args([&redis.url(), form, &api, &limit, &seconds, form]);
        process.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap()
    };
    let _processes: Vec<Child> = (0..3).map(start).collect();
    sleep(WINDOW * 5 / 2).await;
    let arrivals = arrivals.lock().unwrap();
    let within =
        |start: &Instant| arrivals.iter().filter(|at| (*start..*start + WINDOW).contains(at)).count();
    arrivals.iter().map(within).max().unwrap_or_default()
}
