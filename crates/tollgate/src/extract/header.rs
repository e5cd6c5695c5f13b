//! Keys from header values.

use http::{HeaderName, HeaderValue};
use tollgate_core::Key;

use super::extractor::KeyExtractor;
use super::head::Head;

/// The value of a header: see [`header`].
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

/// The value of the header `name`, without spaces and tabs at its ends. Otherwise it is taken byte
/// for byte.
///
/// HTTP/1.1 servers remove such blanks, HTTP/2 servers do not. They are no part of a value (RFC
/// 9110, section 5.5): with them, one API key could be written in many ways, each with its own
/// quota. An empty value is no key.
///
/// Requests with several lines of the header that differ share one key. The code that checks the
/// header may read another line than this extractor, so an invented line must not earn a quota. It
/// must not count as a missing key either: with [`MissingKey::Skip`](crate::MissingKey::Skip) the
/// request would pass the rule.
///
/// For `Authorization` use [`bearer`](super::bearer) or [`basic_user`](super::basic_user): the same
/// credentials can be spelled in several ways. If your check ignores more than blanks, such as
/// upper and lower case, count by what it leaves in the [extensions](super::extension).
///
/// # Panics
/// If `name` is not a header name. [`Header::from`] takes a [`HeaderName`] that was parsed at run
/// time.
///
/// ```
/// use tollgate::extract::header;
///
/// let by_api_key = header("x-api-key");
/// ```
#[track_caller]
pub fn header(name: &str) -> Header {
    match HeaderName::try_from(name) {
        Ok(name) => Header(name),
        Err(_) => panic!("{name:?} is not a header name"),
    }
}

impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Header {
        Header(name)
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        let mut lines = head.headers().get_all(&self.0).iter().map(trimmed);
        let value = lines.next()?;
        Some(if lines.all(|other| other == value) { Key::from_bytes(value) } else { Key::global() })
    }
}

/// A value without the optional whitespace at its ends (RFC 9110, section 5.6.3).
pub(super) fn trimmed(value: &HeaderValue) -> &[u8] {
    let mut value = value.as_bytes();
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key_of(lines: &[&[u8]]) -> Option<Key> {
        let mut request = Request::new(());
        for line in lines {
            request.headers_mut().append("x-key", HeaderValue::from_bytes(line).unwrap());
        }
        header("x-key").extract(&Head::from(&request))
    }

    #[test]
    fn blanks_around_a_header_value_do_not_change_the_key() {
        for value in ["real", " real", "real ", "\treal", "real\t", " \t real \t "] {
            assert_eq!(key_of(&[value.as_bytes()]), Some(Key::from("real")), "{value:?}");
        }
        assert_eq!(key_of(&[b"real", b" real"]), Some(Key::from("real")));
        assert_eq!(key_of(&[b" two  words "]), Some(Key::from("two  words")));
        assert!(key_of(&[b" \t "]).unwrap().is_empty());
    }

    #[test]
    fn header_lines_that_differ_share_a_key() {
        assert_eq!(key_of(&[b"invented", b"real"]), Some(Key::global()));
        assert_eq!(key_of(&[b"real", b"real", b""]), Some(Key::global()));
        assert_eq!(key_of(&[b"", b"real"]), Some(Key::global()));
        assert_eq!(key_of(&[b"real", b"real"]), Some(Key::from("real")));
    }

    #[test]
    fn header_values_need_not_be_utf8() {
        assert_eq!(key_of(&[b"\xff\xfe"]), Some(Key::from_bytes(b"\xff\xfe")));
    }

    #[test]
    #[should_panic(expected = "is not a header name")]
    fn a_bad_header_name_is_refused_at_construction() {
        header("x y");
    }
}
