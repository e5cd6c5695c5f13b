//! Keys from cookies.

use std::borrow::Cow;

use http::header::COOKIE;
use http::request::Parts;
use percent_encoding::percent_decode;
use tollgate_core::Key;

use super::{Head, KeyExtractor};

/// The value of a cookie: see [`cookie`].
#[derive(Clone, Debug)]
pub struct Cookie(Box<str>);

/// The value of the cookie `name`, such as a session (RFC 6265, section 5.4), as the usual cookie jars read it: percent-encoded
/// characters are decoded, in the name as well, and quotes around a value count for nothing. Otherwise one session could be
/// written in many ways, each with a quota of its own. Signed or encrypted cookies are not opened: a tampered one is another key.
///
/// Requests with several by that name that differ share one key: whoever reads the session may take another than would be
/// counted here, and a second one must win nobody a quota of his own, nor let him pass as one who sent none.
///
/// # Panics
/// If `name` is empty or holds a character that a cookie's name cannot (RFC 6265, section 4.1.1): a request could
/// never carry it.
///
/// ```
/// use tollgate::extract::cookie;
///
/// let by_session = cookie("session");
/// ```
pub fn cookie(name: &str) -> Cookie {
    Cookie::try_new(name).unwrap_or_else(|| panic!("{name:?} is not a cookie name"))
}

impl Cookie {
    /// [`cookie`] for a name that is known only at run time: `None` if it is not a cookie's name.
    pub fn try_new(name: &str) -> Option<Cookie> {
        // The characters of a token (RFC 9110, section 5.6.2).
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        (!name.is_empty() && name.bytes().all(token)).then(|| Cookie(name.into()))
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self.extract_from(&parts.into())
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        // HTTP/2 may split cookies over several lines (RFC 9113, section 8.2.3).
        let lines = head.headers.get_all(COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
            let is_this = name == self.0.as_bytes() || *decoded(name) == *self.0.as_bytes();
            is_this.then(|| decoded(value))
        });
        let value = values.next()?;
        let is_one = values.all(|other| unquoted(&other) == unquoted(&value));
        Some(if is_one { Key::from_bytes(unquoted(&value)) } else { Key::global() })
    }

    fn needs_parts(&self) -> bool {
        false
    }
}

/// What a cookie jar makes of percent-encoding.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}

/// A value without the quotes that may stand around it (RFC 6265, section 4.1.1). Some jars take them away before they decode,
/// some afterwards, and some one pair only: to be read as the same session by any of them wins nobody a quota.
fn unquoted(mut value: &[u8]) -> &[u8] {
    while let [b'"', rest @ ..] | [rest @ .., b'"'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn value(lines: &[&str]) -> Option<Key> {
        let mut request = Request::new(());
        for line in lines {
            request.headers_mut().append(COOKIE, line.parse().unwrap());
        }
        cookie("session").extract(&request.into_parts().0)
    }

    #[test]
    fn finds_its_cookie_among_others() {
        assert_eq!(value(&["a=1; session=xyz; b=2"]), Some(Key::from("xyz")));
        assert_eq!(value(&["a=1", "session=x=y=z"]), Some(Key::from("x=y=z")));
        assert_eq!(value(&["session=twice; session=twice", "session=twice"]), Some(Key::from("twice")));
        assert_eq!(value(&["session = spaced"]), Some(Key::from("spaced")));
    }

    /// Who reads the session may take the last, and a caller would have a quota with each first one that he invents. Nor is it as
    /// if there were none, or whoever adds one would leave a rule that is for those who send one.
    #[test]
    fn two_values_of_one_name_share_a_key() {
        assert_eq!(value(&["session=invented; session=real"]), Some(Key::global()));
        assert_eq!(value(&["session=invented", "a=b; session=real"]), Some(Key::global()));
        assert_eq!(value(&["session=; session=real"]), Some(Key::global()));
    }

    /// Cookie jars decode what is percent-encoded, and some take quotes away: all of these are one session to them.
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
        assert_eq!(value(&["session=invented; %73ession=real"]), Some(Key::global()));
        assert_eq!(value(&["session=%zz%6"]), Some(Key::from("%zz%6")), "what is no encoding stays");
        assert_eq!(value(&["session=\"abc\"; session=%22abc"]), Some(Key::from("abc")));
        assert_eq!(value(&["session=\""]), value(&["session="]));
    }

    #[test]
    fn is_not_fooled_by_a_name_that_begins_or_ends_alike() {
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
