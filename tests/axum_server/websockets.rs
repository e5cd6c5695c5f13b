//! WebSockets over HTTP/2 (RFC 8441).

use axum::routing::any;
use axum::{Router, body::Body};
use http::{Method, Request};
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollgate::RateLimitLayer;
use tollgate::config::{Registry, RuleFile};
use tollgate_tests::serve;

/// They begin with `CONNECT`, and passed a rule for `GET`.
#[tokio::test]
async fn a_rule_for_get_counts_websockets_over_http_2() {
    let file = r#"
        [[rule]]
        name = "two"
        quota = "2/d"
        algorithm = "fixed-window"
        by = "global"
        when = { path = "/chat", method = "GET" }
    "#;
    let rules = Registry::new().rules(&RuleFile::from_toml(file).unwrap()).unwrap();
    let routes =
        Router::new().route("/chat", any(|| async { "hello" })).route("/", any(|| async { "hello" }));
    let address = serve(routes.layer(RateLimitLayer::try_new(rules).unwrap())).await;

    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut status = async |method: Method, path: &str| {
        let is_websocket = method == Method::CONNECT;
        let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
        let mut request = request.body(Body::empty()).unwrap();
        if is_websocket {
            request.extensions_mut().insert(Protocol::from_static("websocket"));
        }
        sender.ready().await.unwrap();
        sender.send_request(request).await.unwrap().status().as_u16()
    };
    // The server's settings, which allow such a request, come with the first response.
    assert_eq!(status(Method::GET, "/").await, 200);
    assert_eq!(status(Method::CONNECT, "/chat").await, 200);
    assert_eq!(status(Method::GET, "/chat").await, 200);
    assert_eq!(status(Method::CONNECT, "/chat").await, 429);
    assert_eq!(status(Method::GET, "/chat").await, 429);
    assert_eq!(status(Method::CONNECT, "/").await, 200, "another path");
    assert_eq!(status(Method::POST, "/chat").await, 200);
}
