//! Which hosts the page answers to.
//!
//! A page of an attacker can have its own name resolve to this server (DNS rebinding). The browser
//! then takes both for one origin, and lets that page read the keys. Only the `Host` differs.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Names and addresses, in addition to those of the loopback interface.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Parses the hosts of the command line. Errors are one line.
    pub(crate) fn parse(hosts: &[String]) -> Result<Hosts, String> {
        let parse = |text: &String| {
            // An IPv6 address needs no brackets here.
            let host = if text.parse::<IpAddr>().is_ok() { Some(normal(text)) } else { host_of(text) };
            let is_host = |host: &String| !host.is_empty() && *host == normal(text);
            host.filter(is_host).ok_or_else(|| {
                format!("--host: {text:?} is not a host: use a name or an address, without a port")
            })
        };
        hosts.iter().map(parse).collect::<Result<_, _>>().map(Hosts)
    }

    /// Adds the address that the server listens on, which no name can stand for.
    pub(crate) fn and(mut self, address: IpAddr) -> Hosts {
        self.0.push(address.to_canonical().to_string());
        self
    }

    /// Whether a request names one of these hosts, and no other. HTTP/2 names it in the URI.
    fn name(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let in_uri = uri.authority().map(Authority::as_str);
        let in_fields = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let mut named = in_uri.into_iter().chain(in_fields).peekable();
        named.peek().is_some() && named.all(|host| self.contain(host))
    }

    fn contain(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        let is_loopback = || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        host == "localhost" || is_loopback() || self.0.contains(&host)
    }
}

/// The host of `host:port`, in its normal form.
fn host_of(authority: &str) -> Option<String> {
    let authority: Authority = authority.parse().ok().filter(|_| !authority.contains('@'))?;
    Some(normal(authority.host()))
}

/// One spelling for each host.
fn normal(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

/// Refuses requests for other hosts.
pub(super) async fn only(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if hosts.name(request.uri(), request.headers()) {
        return next.run(request).await;
    }
    let text =
        "this page answers to localhost, to the address that the playground listens on, and to each --host\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_given_hosts_are_answered() {
        let given = ["Demo.Example".to_owned(), "2001:db8::1".to_owned(), "[2001:db8::2]".to_owned()];
        let hosts = Hosts::parse(&given).unwrap().and("192.0.2.1".parse().unwrap());
        for host in [
            "localhost",
            "LOCALHOST:3000",
            "localhost.:3000",
            "127.0.0.1",
            "127.1.2.3:80",
            "[::1]",
            "[::1]:3000",
            "[0:0:0:0:0:0:0:1]:3000",
            "[::ffff:127.0.0.1]",
            "demo.example",
            "DEMO.example.:3000",
            "192.0.2.1:3000",
            "[2001:db8::1]:3000",
            "[2001:DB8:0::2]",
        ] {
            assert!(hosts.contain(host), "{host}");
        }
        for host in [
            "",
            ":3000",
            "evil.example",
            "evil.example:3000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example@localhost",
            "localhost@evil.example",
            "192.0.2.2",
            "[2001:db8::3]",
            "demo.example/",
            "notdemo.example",
            "demo.example, localhost",
            "0.0.0.0:3000",
        ] {
            assert!(!hosts.contain(host), "{host}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_on_the_command_line() {
        for text in ["", "a b", "demo.example:3000", "[::1]:80", "http://demo.example", "a@b", "demo/"] {
            assert!(Hosts::parse(&[text.to_owned()]).unwrap_err().contains("without a port"), "{text}");
        }
    }
}
