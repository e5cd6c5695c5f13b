//! An HTTP/1.1 server, and a client that writes raw bytes, which a client library would not send.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::log::Log;

/// Serves on a free port while the runtime lives, with peer addresses.
///
/// A log of this process that has a code of a wrong setup ends it, unless its test reads that log.
pub async fn serve(app: Router) -> SocketAddr {
    Log::ends_with_a_code();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    read: BufReader<OwnedReadHalf>,
    /// `None` once it sends in the background.
    write: Option<OwnedWriteHalf>,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Its fields.
    pub headers: HeaderMap,
    /// As many bytes as `Content-Length` says.
    pub body: String,
}

impl Answer {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a text"))
    }
}

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Client {
        let (read, write) = TcpStream::connect(address).await.expect("a connection").into_split();
        Client { read: BufReader::new(read), write: Some(write) }
    }

    /// Writes bytes as they are.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let write = self.write.as_mut().expect("nothing is being sent");
        write.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Writes bytes in the background while the server accepts them. They must be the last on this
    /// connection.
    pub fn send_meanwhile(&mut self, bytes: Vec<u8>) {
        let write = self.write.take();
        tokio::spawn(async move {
            let mut write = write.expect("nothing is being sent");
            // The server may have closed before it has read everything.
            let _ = write.write_all(&bytes).await;
            // A server may take the end of the stream for the end of the client, so it stays open.
            std::future::pending::<()>().await;
            drop(write);
        });
    }

    /// Sends a request without a body; `fields` are whole lines.
    pub async fn request(&mut self, method: &str, path: &str, fields: &[&str]) -> Answer {
        let mut lines = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
        for field in fields {
            lines.push_str(field);
            lines.push_str("\r\n");
        }
        self.send(lines + "\r\n").await;
        self.answer_to(method).await
    }

    /// `GET` without a body.
    pub async fn get(&mut self, path: &str, fields: &[&str]) -> Answer {
        self.request("GET", path, fields).await
    }

    /// Reads the response to a request with that method.
    pub async fn answer_to(&mut self, method: &str) -> Answer {
        timeout(PATIENCE, self.read_answer(method)).await.expect("an answer in time")
    }

    /// Whether the server closes the connection within that time and sends no byte before.
    pub async fn is_closed_within(&mut self, time: Duration) -> bool {
        // A reset is a close, too.
        timeout(time, self.read.read_u8()).await.is_ok_and(|byte| byte.is_err())
    }

    async fn read_answer(&mut self, method: &str) -> Answer {
        let status_line = self.line().await;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{status_line:?} is no status line"));
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else { break };
            let name = HeaderName::try_from(name).expect("a header name");
            headers.append(name, HeaderValue::try_from(value).expect("a header value"));
        }
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let has_body = method != "HEAD" && status >= 200;
        let mut body = vec![0; if has_body { length.unwrap_or(0) } else { 0 }];
        self.read.read_exact(&mut body).await.expect("a body as long as it says");
        Answer { status, headers, body: String::from_utf8(body).expect("a text") }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.read.read_line(&mut line).await.expect("a line");
        assert!(line.ends_with("\r\n"), "the connection ended in {line:?}");
        line.truncate(line.len() - 2);
        line
    }
}
