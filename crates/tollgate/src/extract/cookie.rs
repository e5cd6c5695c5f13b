//! Keys from cookies.

use std::borrow::Cow;

use http::header::COOKIE;
use percent_encoding::percent_decode;
use tollgate_core::Key;

use super::client_ip::ClientIp;
use super::extractor::KeyExtractor;
use super::head::Head;
use super::peer_ip::PeerIp;
use crate::errors::Reason;

/// The value of a cookie: see [`cookie`].
#[derive(Clone, Debug)]
pub struct Cookie {
    name: Box<str>,
    /// Counts requests whose cookies differ; by default the peer's address does.
    client_ip: Option<ClientIp>,
}

/// The value of the cookie `name`, such as a session (RFC 6265, section 5.4), as the usual cookie
/// jars read it.
///
/// Percent-encoded characters are decoded, in the name as well, and quotes around a value are
/// ignored. Otherwise one session could be written in many ways, each with its own quota. Signed or
/// encrypted cookies are not opened: a tampered one is another key.
///
/// # Several cookies of one name
/// If their values differ, the request is counted by the address of its peer; behind proxies, by
/// that of [`client_ip`](Cookie::client_ip). The server may read either cookie, so the first, the
/// last, or all values together would earn a quota with each invented cookie.
///
/// Such a request can be an honest one: a page on another subdomain can plant a second cookie in a
/// browser (cookie tossing). The address keeps its victim apart from the attacker:
///
/// - In one bucket for all such requests, the attacker would use up the victim's quota.
/// - Without a key, the victim would be refused at every request. With
///   [`MissingKey::Skip`](crate::MissingKey::Skip), any caller could leave the rule by adding a
///   cookie.
///
/// The price: the holder of one session can also use a quota at each of its addresses. Where that
/// matters, count by the authenticated user, with [`extension`](super::extension). Without an
/// address, the request has no key, and is answered as one without the address of its peer.
///
/// # Panics
/// If `name` is empty or has a character that no cookie name has (RFC 6265, section 4.1.1): no
/// request could carry it.
///
/// ```
/// use tollgate::extract::cookie;
///
/// let by_session = cookie("session");
/// ```
#[track_caller]
pub fn cookie(name: &str) -> Cookie {
    match Cookie::try_new(name) {
        Some(cookie) => cookie,
        None => panic!("{name:?} is not a cookie name"),
    }
}

impl Cookie {
    /// [`cookie`] for a name that is known only at run time. `None` if it is not a cookie name.
    pub fn try_new(name: &str) -> Option<Cookie> {
        // The characters of a token (RFC 9110, section 5.6.2).
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        (!name.is_empty() && name.bytes().all(token)).then(|| Cookie { name: name.into(), client_ip: None })
    }

    /// Counts requests whose cookies [differ](cookie#several-cookies-of-one-name) by the address of
    /// the client instead of the peer's. Needed behind proxies: there all such requests would share
    /// the address of the proxy.
    ///
    /// ```
    /// use tollgate::extract::{ClientIp, cookie};
    ///
    /// let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
    /// let by_session = cookie("session").client_ip(client);
    /// ```
    #[must_use]
    pub fn client_ip(mut self, client: ClientIp) -> Cookie {
        self.client_ip = Some(client);
        self
    }
}

/// What a request says of a cookie.
enum CookieValue<'a> {
    Nothing,
    One(Cow<'a, [u8]>),
    /// Several, which differ.
    Several,
}

impl Cookie {
    fn find<'a>(&self, head: &Head<'a>) -> CookieValue<'a> {
        // HTTP/2 may split cookies over several lines (RFC 9113, section 8.2.3).
        let lines = head.headers().get_all(COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
            let is_this = name == self.name.as_bytes() || *decoded(name) == *self.name.as_bytes();
            is_this.then(|| decoded(value))
        });
        match values.next() {
            None => CookieValue::Nothing,
            Some(value) if values.any(|other| unquoted(&other) != unquoted(&value)) => CookieValue::Several,
            Some(value) => CookieValue::One(value),
        }
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        match (self.find(head), &self.client_ip) {
            (CookieValue::Nothing, _) => None,
            (CookieValue::One(value), _) => Some(Key::from_bytes(unquoted(&value))),
            (CookieValue::Several, Some(client_ip)) => client_ip.extract(head),
            (CookieValue::Several, None) => PeerIp::new().extract(head),
        }
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        match (self.find(head), &self.client_ip) {
            (CookieValue::Nothing | CookieValue::One(_), _) => Reason::NoKey,
            (CookieValue::Several, Some(client_ip)) => client_ip.why_missing(head),
            (CookieValue::Several, None) => PeerIp::new().why_missing(head),
        }
    }
}

/// Decodes percent-encoding, as cookie jars do.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}

/// Removes all quotes around a value (RFC 6265, section 4.1.1). Cookie jars remove them before or
/// after decoding, or only one pair: no spelling of one session may earn a new quota.
fn unquoted(mut value: &[u8]) -> &[u8] {
    while let [b'"', rest @ ..] | [rest @ .., b'"'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::PeerAddr;
    use super::*;
    use http::Request;

    fn request(lines: &[&str]) -> Request<()> {
        let mut request = Request::new(());
        for line in lines {
            request.headers_mut().append(COOKIE, line.parse().unwrap());
        }
        request
    }

    fn value_from(peer: &str, lines: &[&str]) -> Option<Key> {
        let mut request = request(lines);
        request.extensions_mut().insert(PeerAddr(peer.parse().unwrap()));
        cookie("session").extract(&Head::from(&request))
    }

    fn value(lines: &[&str]) -> Option<Key> {
        value_from("192.0.2.1:443", lines)
    }

    fn peer() -> Option<Key> {
        Some(Key::network([192, 0, 2, 1].into(), 64))
    }

    #[test]
    fn finds_its_cookie_among_others() {
        assert_eq!(value(&["a=1; session=xyz; b=2"]), Some(Key::from("xyz")));
        assert_eq!(value(&["a=1", "session=x=y=z"]), Some(Key::from("x=y=z")));
        assert_eq!(value(&["session=twice; session=twice", "session=twice"]), Some(Key::from("twice")));
        assert_eq!(value(&["session = spaced"]), Some(Key::from("spaced")));
    }

    #[test]
    fn cookies_that_differ_are_counted_by_the_peers_address() {
        for lines in [
            &["session=invented; session=real"][..],
            &["session=other; session=real"],
            &["session=invented", "a=b; session=real"],
            &["session=; session=real"],
        ] {
            assert_eq!(value(lines), peer(), "{lines:?}");
            assert_ne!(value_from("192.0.2.2:443", lines), peer(), "{lines:?}");
        }
        // A session that reads like the address is another caller.
        assert_ne!(value(&["session=192.0.2.1"]), peer());
    }

    #[test]
    fn cookies_that_differ_behind_a_proxy_are_counted_by_the_client() {
        let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
        let by_session = cookie("session").client_ip(client);
        let mut request = request(&["session=planted; session=real"]);
        request.extensions_mut().insert(PeerAddr("10.0.0.1:443".parse().unwrap()));
        request.headers_mut().insert("x-forwarded-for", "192.0.2.1".parse().unwrap());
        assert_eq!(by_session.extract(&Head::from(&request)), peer());
    }

    #[test]
    fn cookies_that_differ_without_an_address_are_the_servers_mistake() {
        for (line, reason) in [
            ("session=planted; session=real", Reason::NoPeerAddress),
            ("session=", Reason::NoKey),
            ("other=real", Reason::NoKey),
        ] {
            let request = request(&[line]);
            let head = Head::from(&request);
            assert!(cookie("session").extract(&head).is_none_or(|key| key.is_empty()), "{line}");
            assert_eq!(cookie("session").why_missing(&head), reason, "{line}");
        }
    }

    /// Cookie jars decode percent-encoding, and some remove quotes: these are all one session.
    #[test]
    fn one_session_written_in_many_ways_is_one_key() {
        for cookie in [
            "session=%61bc",
            "session=a%62%63",
            "session=\"abc\"",
            "session=%22abc%22",
            "session=\"%22%22abc\"",
            "session=%22abc",
            "%73ession=abc",
            "sess%69on=%61%62%63",
        ] {
            assert_eq!(value(&[cookie]), Some(Key::from("abc")), "{cookie}");
        }
        assert_eq!(value(&["session=abc; %73ession=%61bc"]), Some(Key::from("abc")));
        assert_eq!(value(&["session=invented; %73ession=real"]), peer());
        assert_eq!(value(&["session=%zz%6"]), Some(Key::from("%zz%6")), "invalid encoding is kept");
        assert_eq!(value(&["session=\"abc\"; session=%22abc"]), Some(Key::from("abc")));
        assert_eq!(value(&["session=\""]), value(&["session="]));
    }

    #[test]
    fn a_cookie_with_a_similar_name_is_ignored() {
        assert_eq!(value(&["sessions=1; xsession=2; Session=3; session"]), None);
        assert_eq!(value(&["a=session=1"]), None);
        assert_eq!(value(&[";;;=;"]), None);
        assert!(value(&["session="]).unwrap().is_empty());
    }

    #[test]
    fn names_that_no_request_can_carry_are_refused() {
        for name in ["", "a b", "a=b", "a;b", "é"] {
            assert!(Cookie::try_new(name).is_none(), "{name:?}");
        }
    }
}
