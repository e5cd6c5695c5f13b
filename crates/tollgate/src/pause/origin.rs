//! The origin of a request over `http::Request`.

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, Request};
use tollgate_core::Key;

/// The longest name in DNS (RFC 1035, section 2.3.4), as text.
const LONGEST_HOST: usize = 253;

pub(super) fn origin<B>(request: &Request<B>) -> Option<Key> {
    let uri = request.uri();
    match uri.authority() {
        Some(authority) => key(uri.scheme_str().unwrap_or("http"), authority),
        None => key("http", &request.headers().get(HOST).and_then(authority)?),
    }
}

fn authority(host: &HeaderValue) -> Option<Authority> {
    Authority::try_from(host.as_bytes()).ok()
}

/// The scheme, the host and the port, without user info, in which there may be a password.
fn key(scheme: &str, authority: &Authority) -> Option<Key> {
    let (scheme, host) = (scheme.to_ascii_lowercase(), authority.host());
    let default = match &*scheme {
        "http" | "ws" => 80,
        "https" | "wss" => 443,
        _ => 0,
    };
    let port = authority.port_u16().unwrap_or(default);
    (host.len() <= LONGEST_HOST)
        .then(|| Key::join([Key::from(scheme), Key::from(host.to_ascii_lowercase()), Key::from(port)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_uri(uri: &str) -> Option<Key> {
        origin(&Request::get(uri).body(()).unwrap())
    }

    fn of_host(host: &str) -> Option<Key> {
        origin(&Request::get("/path").header(HOST, host).body(()).unwrap())
    }

    #[test]
    fn spellings_of_an_origin_are_one_key() {
        let spellings = [
            "http://api.example/",
            "http://API.example/other",
            "HTTP://api.example:80/",
            "http://x@api.example/",
            "http://user:secret@api.example:80/",
        ];
        for spelling in spellings {
            assert_eq!(of_uri(spelling), of_uri(spellings[0]), "{spelling}");
        }
        for host in ["api.example", "Api.Example:80", "x@api.example"] {
            assert_eq!(of_host(host), of_uri(spellings[0]), "{host}");
        }
        for (default, port) in [("https", 443), ("ws", 80), ("wss", 443)] {
            assert_eq!(of_uri(&format!("{default}://a/")), of_uri(&format!("{default}://a:{port}/")));
        }
        assert_eq!(of_uri("http://[2001:DB8::1]:80/"), of_uri("http://[2001:db8::1]/"));
    }

    #[test]
    fn other_schemes_hosts_and_ports_are_other_keys() {
        let origins = [
            "http://a/",
            "http://b/",
            "http://a:443/",
            "https://a/",
            "ws://a/",
            "http://[2001:db8::1]/",
            "redis://a/",
            "redis://a:80/",
        ];
        for (n, origin) in origins.iter().enumerate() {
            assert!(of_uri(origin).is_some());
            assert!(origins[..n].iter().all(|other| of_uri(other) != of_uri(origin)), "{origin}");
        }
    }

    #[test]
    fn a_request_without_a_host_or_with_no_name_of_dns_has_no_origin() {
        assert_eq!(of_uri("/path"), None);
        assert_eq!(of_host("a b"), None);
        let host = |length| format!("http://{}/", "h".repeat(length));
        assert!(of_uri(&host(253)).is_some());
        assert_eq!(of_uri(&host(254)), None);
    }
}
