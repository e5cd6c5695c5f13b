//! A small HTTP/1.1 client that sends header lines exactly as given.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection that is kept alive between requests.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// Its status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Its body, which is as long as `Content-Length` says.
    pub body: String,
}

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        // A server that never answers fails the test.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Connection(BufReader::new(stream))
    }

    /// Sends a request without a body.
    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        self.send(method, path, headers, "")
    }

    /// Sends a POST.
    pub fn post(&mut self, path: &str, body: &str) -> Response {
        self.send("POST", path, &[], body)
    }

    fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if method == "POST" {
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        request.push_str(body);
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.response()
    }

    fn response(&mut self) -> Response {
        let first = self.line();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response { status, headers, body: String::new() };
        let length = response.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        response.body = String::from_utf8(body).unwrap();
        response
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Response {
    /// Returns the value of a header with at most one line.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers.iter().filter(|(each, _)| each == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} has several lines: {self:?}");
        value
    }

    /// Returns a parameter of a policy in `RateLimit` or `RateLimit-Policy`: `r`, `t`, `q`, `w`.
    pub fn field(&self, header: &str, policy: &str, parameter: &str) -> u64 {
        let value = self.header(header).unwrap_or_else(|| panic!("no {header}: {self:?}"));
        let item = value.split(", ").find_map(|item| item.strip_prefix(&format!("\"{policy}\"")));
        let mut parameters = item.unwrap_or_else(|| panic!("no {policy}: {value}")).split(';');
        let value = parameters.find_map(|each| each.strip_prefix(parameter)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {parameter}: {self:?}"))
    }

    /// Returns the units that a policy has left, by `RateLimit`.
    pub fn remaining(&self, policy: &str) -> u64 {
        self.field("ratelimit", policy, "r")
    }

    /// Returns `Retry-After`, which must exist and be at least a second.
    pub fn retry_after(&self) -> Duration {
        let seconds = self.header("retry-after").unwrap_or_else(|| panic!("no Retry-After: {self:?}"));
        let seconds = seconds.parse().unwrap();
        assert!(seconds >= 1, "{self:?}");
        Duration::from_secs(seconds)
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that these policies refused the request for now.
    #[track_caller]
    pub fn assert_refused_by(&self, policies: &[&str]) {
        assert_eq!(self.status, 429, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
        assert_eq!(problem["status"], 429);
        assert_eq!(problem["violated-policies"], serde_json::json!(policies), "{problem}");
        self.retry_after();
    }
}
