//! Stacks beyond axum, over real sockets: hyper servers, clients, and layers of tower and
//! tower-http around the limit.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

mod bodies;
mod clients;
mod http_layers;
mod orders;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tollgate::RateLimitLayer;
use tollgate::extract::PeerAddr;
use tollgate_tests::{clock, per_user, store};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves with hyper on a free port while the runtime lives, with peer addresses.
async fn serve<S, B>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send, Error: Into<BoxError>>,
    S: Clone + Send + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let service = ServiceBuilder::new()
                .map_request(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(PeerAddr(peer));
                    request
                })
                .service(service.clone());
            let service = TowerToHyperService::new(service);
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// A client that sends HTTP to the host that a request names.
fn http_client() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

/// A request of the user ada.
fn get(address: SocketAddr) -> http::request::Builder {
    Request::get(format!("http://{address}/")).header("x-user", "ada")
}

/// The answer of a server, with its whole body.
async fn answer(request: http::request::Builder) -> Response<Bytes> {
    let request = request.body(Empty::new()).unwrap();
    let (parts, body) =
        timeout(PATIENCE, http_client().oneshot(request)).await.unwrap().unwrap().into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

/// The statuses of so many requests of one user.
async fn statuses(address: SocketAddr, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(answer(get(address)).await.status().as_u16());
    }
    statuses
}

/// Two requests a minute for each user, with a clock that stands still.
fn two_each() -> RateLimitLayer {
    RateLimitLayer::new([per_user("two", 2)]).store(store(&clock()))
}
