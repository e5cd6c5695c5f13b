//! A server without peer addresses. Alone in its process, because the message is logged once per
//! process.

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Quota, RateLimitLayer};
use tollgate_tests::{Client, Level, Log};

#[tokio::test]
async fn a_missing_peer_address_is_a_500_and_the_log_names_the_missing_call() {
    if crate::ran_in_own_process(a_missing_peer_address_is_a_500_and_the_log_names_the_missing_call) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let layer = RateLimitLayer::per_ip(Quota::per_minute(100));
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // The mistake: `app.into_make_service_with_connect_info::<SocketAddr>()` is missing.
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut client = Client::connect(address).await;
    for _ in 0..5 {
        let answer = client.get("/", &[]).await;
        assert_eq!(answer.status, 500);
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
        assert_eq!(answer.field("retry-after"), None, "waiting does not help");
        let title = r#"{"title":"Internal Server Error","status":500,"#;
        assert!(answer.body.starts_with(title) && answer.body.contains("default"), "{}", answer.body);
        let answer =
            client.request("POST", "/", &["content-type: application/grpc", "content-length: 0"]).await;
        assert_eq!((answer.status, answer.field("grpc-status")), (200, Some("13")));
    }

    let mut errors = log.lines();
    errors.retain(|line| line.contains("ERROR"));
    let [error] = &errors[..] else { panic!("not one error but {errors:?}") };
    assert!(error.contains("into_make_service_with_connect_info"), "{error}");
    assert!(error.contains("feature `tonic`"), "{error}");
}
