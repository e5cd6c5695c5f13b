//! A line of a log: a request, and what was decided about it.

use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{HeaderValue, Method, Request, Uri};
use humantime::parse_rfc3339;
use serde::Deserialize;
use tollgate::Timestamp;
use tollgate::extract::PeerAddr;

/// A request of a log. Its extensions have the [`LoggedDecision`], if the line is JSON.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) time: Timestamp,
    pub(super) request: Request<()>,
}

/// What a rule set decided about a request.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LoggedDecision {
    time: String,
    /// That of the rule set.
    #[serde(default)]
    pub(super) version: u64,
    /// Whether a rule in shadow decided, about a request that has a line of its own.
    #[serde(default)]
    pub(super) shadow: bool,
    /// How many decisions before this one have no line, since the log did not take them in time.
    #[serde(default)]
    pub(super) dropped: u64,
    pub(super) allowed: bool,
    #[serde(default = "get")]
    method: String,
    #[serde(default = "root")]
    path: String,
    peer: Option<IpAddr>,
    /// Of the rules that applied.
    pub(super) checks: Vec<LoggedCheck>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct LoggedCheck {
    pub(super) rule: String,
    /// A digest.
    pub(super) key: String,
    pub(super) cost: u64,
    pub(super) denied: bool,
}

fn get() -> String {
    "GET".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

impl LoggedDecision {
    pub(super) fn check(&self, rule: &str) -> Option<&LoggedCheck> {
        self.checks.iter().find(|check| check.rule == rule)
    }

    /// The rules that refused the request.
    pub(super) fn refused_by(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().filter(|check| check.denied).map(|check| &*check.rule)
    }
}

/// Parses a JSON object.
pub(super) fn json_line(text: &[u8]) -> Result<LogLine, String> {
    let logged: LoggedDecision = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let time = parse_rfc3339(&logged.time).ok().and_then(timestamp);
    let time =
        time.ok_or_else(|| format!("{:?} is not a time such as 2026-05-04T15:04:05.123456Z", logged.time))?;
    let mut request = request(&logged.method, &logged.path, logged.peer)?;
    request.extensions_mut().insert(logged);
    Ok(LogLine { time, request })
}

/// The request of a line. `OPTIONS` counts as a preflight of CORS, as almost always.
pub(super) fn request(method: &str, target: &str, peer: Option<IpAddr>) -> Result<Request<()>, String> {
    let mut request = Request::new(());
    *request.method_mut() = method.parse().map_err(|_| format!("{method:?} is not a method"))?;
    // `CONNECT` has no path.
    let target = if target.is_empty() { "/" } else { target };
    *request.uri_mut() = target.parse::<Uri>().map_err(|_| format!("{target:?} is not a path"))?;
    if request.method() == Method::OPTIONS {
        let headers =
            [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD].map(|name| (name, HeaderValue::from_static("*")));
        request.headers_mut().extend(headers);
    }
    if let Some(peer) = peer {
        request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer, 0)));
    }
    Ok(request)
}

/// `None` before 1970 and after [`Timestamp::MAX`].
pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let micros = u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()?;
    Some(Timestamp::from_micros(micros)).filter(|time| time.as_micros() == micros)
}
