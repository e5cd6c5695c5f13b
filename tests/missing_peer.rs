//! A server that does not tell the addresses of its peers. Alone in its process, since the log says it once in a process.

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Quota, RateLimitLayer};
use tollgate_tests::Client;
use tracing_subscriber::fmt::MakeWriter;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

#[tokio::test]
async fn without_the_addresses_of_peers_requests_are_refused_and_the_log_names_the_missing_call_once() {
    let log = Log::default();
    tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).init();

    let layer = RateLimitLayer::per_ip(Quota::per_minute(100));
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // The mistake: `app.into_make_service_with_connect_info::<SocketAddr>()` is missing.
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut client = Client::connect(address).await;
    for _ in 0..5 {
        let answer = client.get("/", &[]).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
        assert_eq!(answer.field("retry-after"), None, "waiting does not help");
        assert!(answer.body.contains("\"status\":400") && answer.body.contains("default"), "{}", answer.body);
    }

    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let errors: Vec<&str> = logged.lines().filter(|line| line.contains("ERROR")).collect();
    let [error] = errors[..] else { panic!("not one error but {errors:?}") };
    assert!(error.contains("into_make_service_with_connect_info"), "{error}");
}
