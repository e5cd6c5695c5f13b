//! Callers that are refused and then send their bodies one byte a second. Alone in its process,
//! because memory is measured for a thread.

use std::net::SocketAddr;
use std::time::Duration;

use allocation_counter::measure;
use axum::Router;
use axum::routing::post;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::RateLimitLayer;
use tollgate::extract::header;
use tollgate::{Policy, PolicyExt, Quota};

const SENDERS: usize = 1_000;

/// Far longer than the bound of one second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Both sides run on one thread, whose memory is counted. So the limit includes the clients'
/// memory.
#[test]
fn a_thousand_slow_senders_hold_little_memory_and_end_soon() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let heap = measure(|| {
        runtime.block_on(async {
            let address = server().await;
            let mut senders = JoinSet::new();
            for _ in 0..SENDERS {
                senders.spawn(sends_slowly(address));
            }
            let all = async { while senders.join_next().await.transpose().unwrap().is_some() {} };
            timeout(PATIENCE, all).await.expect("the server closes every connection");
        });
    });
    assert!(heap.bytes_max <= 32 << 20, "{} bytes at most", heap.bytes_max);
    drop(runtime);
}

async fn server() -> SocketAddr {
    let layer = RateLimitLayer::new([Policy::new("one", Quota::per_day(1)).by(header("x-user"))]);
    let app = Router::new().route("/", post(|| async {})).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Reads the refusal, then sends until the server closes.
async fn sends_slowly(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(head).await.expect("the server reads");
    let mut answer = [0; 1_024];
    let read = stream.read(&mut answer).await.expect("an answer");
    assert!(answer[..read].starts_with(b"HTTP/1.1 400 "), "no refusal");
    let (mut read, mut write) = stream.split();
    let sends = async {
        while write.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let closed = async { while !matches!(read.read(&mut answer).await, Ok(0) | Err(_)) {} };
    tokio::select! { () = sends => {} () = closed => {} }
}
