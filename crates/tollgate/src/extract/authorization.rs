//! Keys from the `Authorization` header.

use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use http::header::AUTHORIZATION;
use tollgate_core::Key;

use super::extractor::KeyExtractor;
use super::head::Head;
use super::header::trimmed;

/// The token of `Authorization: Bearer <token>` (RFC 6750, section 2.1).
///
/// `Bearer tok`, `bearer tok` and `Bearer  tok` are one key: the name of the scheme is
/// case-insensitive, and the number of blanks does not matter. The token is compared byte for byte.
/// Any other scheme, and a token with characters that a token cannot have (RFC 9110, section 11.2),
/// is no key.
///
/// **Prefer the authenticated identity.** Inside your authentication layer,
/// [`extension`](super::extension) names the user, who may have several tokens. Outside of it an
/// attacker can invent tokens, and each has a fresh quota: add a rule by address, as the
/// [guide](crate::guide::keys#invented-keys) does.
///
/// Requests with several `Authorization` lines that differ share one key, as with
/// [`header`](super::header).
///
/// ```
/// use http::Request;
/// use tollgate::extract::{KeyExtractor, bearer};
/// use tollgate::{Head, Key};
///
/// let key = |authorization: &str| {
///     let request = Request::get("/").header("authorization", authorization).body(()).unwrap();
///     bearer().extract(&Head::from(&request))
/// };
/// assert_eq!(key("Bearer tok"), Some(Key::from("tok")));
/// assert_eq!(key("bearer  tok"), Some(Key::from("tok")));
/// assert_eq!(key("Basic dG9rOg=="), None);
/// ```
pub fn bearer() -> impl KeyExtractor {
    by_credentials("bearer", |token| Some(Key::from_bytes(token)))
}

/// The user id of `Authorization: Basic <credentials>` (RFC 7617, section 2): what stands before
/// the first colon of the decoded credentials. The password is not part of the key.
///
/// The name of the scheme, blanks and the padding of the base64 do not change the key, nor does
/// what tolerant decoders ignore. The user id is compared byte for byte: if your user database
/// ignores case, count by what authentication found. Malformed credentials are no key: another
/// scheme, no base64, no colon, or a control character in the user id. An empty user id is no key
/// either.
///
/// **Prefer the authenticated identity**, as with [`bearer`]. Before the password is checked, any
/// caller can name any user. It can then use up that user's quota, or invent users: give the rule
/// room, and add a rule by address.
///
/// Requests with several `Authorization` lines that differ share one key, as with
/// [`header`](super::header).
///
/// ```
/// use http::Request;
/// use tollgate::extract::{KeyExtractor, basic_user};
/// use tollgate::{Head, Key};
///
/// let key = |authorization: &str| {
///     let request = Request::get("/").header("authorization", authorization).body(()).unwrap();
///     basic_user().extract(&Head::from(&request))
/// };
/// assert_eq!(key("Basic YWRhOjEyMzQ="), Some(Key::from("ada")), "ada:1234");
/// assert_eq!(key("basic YWRhOnF3ZXJ0eQ"), Some(Key::from("ada")), "ada:qwerty");
/// assert_eq!(key("Basic YWRh"), None, "no colon");
/// ```
pub fn basic_user() -> impl KeyExtractor {
    by_credentials("basic", |token| {
        let credentials = LENIENT.decode(as_tolerant_checks_read(token)).ok()?;
        let colon = credentials.iter().position(|byte| *byte == b':')?;
        let user = &credentials[..colon];
        // A check that stops at a NUL would take "ada\0x" for ada, and each such name would have a
        // quota.
        (!user.iter().any(u8::is_ascii_control)).then(|| Key::from_bytes(user))
    })
}

/// Decodes what a tolerant check may accept too: if it were no key, `MissingKey::Skip` would let it
/// pass the rule.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Some checks also decode the alphabet for URLs, ignore other characters, and a last one that is
/// less than a byte.
fn as_tolerant_checks_read(token: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'.' | b'~' | b'=' => None,
        digit => Some(*digit),
    };
    let mut digits: Vec<u8> = token.iter().filter_map(digit).collect();
    if digits.len() % 4 == 1 {
        digits.pop();
    }
    digits
}

fn by_credentials(
    scheme: &'static str,
    key: impl Fn(&[u8]) -> Option<Key> + Send + Sync + 'static,
) -> impl KeyExtractor {
    move |head: &Head<'_>| {
        let lines = head.headers().get_all(AUTHORIZATION).iter();
        let mut keys = lines.map(|line| credentials(trimmed(line), scheme).and_then(&key));
        let first = keys.next()?;
        if keys.all(|other| other == first) { first } else { Some(Key::global()) }
    }
}

/// What follows the name of a scheme, if it is that scheme and a token68 (RFC 9110, section 11.2).
fn credentials<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let (name, rest) = value.split_at_checked(scheme.len())?;
    // `value` is trimmed, so only the blanks in front go.
    let token = rest.trim_ascii();
    let is_separated = token.len() < rest.len();
    (name.eq_ignore_ascii_case(scheme.as_bytes()) && is_separated && is_token68(token)).then_some(token)
}

fn is_token68(token: &[u8]) -> bool {
    let padding = token.iter().rev().take_while(|byte| **byte == b'=').count();
    let characters = &token[..token.len() - padding];
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    !characters.is_empty() && characters.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn key_of(extractor: &impl KeyExtractor, lines: &[&str]) -> Option<Key> {
        let mut request = Request::new(());
        for line in lines {
            request.headers_mut().append(AUTHORIZATION, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        extractor.extract(&Head::from(&request))
    }

    #[test]
    fn every_spelling_of_a_bearer_token_is_one_key() {
        for line in [
            "Bearer tok",
            "bearer tok",
            "BEARER tok",
            "Bearer  tok",
            "Bearer \t tok",
            " Bearer tok",
            "Bearer tok \t",
        ] {
            assert_eq!(key_of(&bearer(), &[line]), Some(Key::from("tok")), "{line:?}");
        }
        assert_eq!(key_of(&bearer(), &["Bearer aZ09-._~+/=="]), Some(Key::from("aZ09-._~+/==")));
        assert_ne!(key_of(&bearer(), &["Bearer TOK"]), key_of(&bearer(), &["Bearer tok"]));
    }

    #[test]
    fn what_is_no_bearer_token_is_no_key() {
        for line in [
            "",
            "Bearer",
            "Bearer ",
            "Bearertok",
            "Basic dG9rOg==",
            "Token tok",
            "Bearer: tok",
            "Bearer tok tok",
            "Bearer tok,",
            "Bearer =",
            "Bearer to=k",
            "Bearer \"tok\"",
            "Bearer t\u{f6}k",
            "tok",
        ] {
            assert_eq!(key_of(&bearer(), &[line]), None, "{line:?}");
        }
        assert_eq!(key_of(&bearer(), &[]), None);
    }

    /// A check may read either line: a second one must neither earn a quota nor lose the key.
    #[test]
    fn authorization_lines_that_differ_share_a_key() {
        assert_eq!(key_of(&bearer(), &["Bearer a", "bearer  a"]), Some(Key::from("a")));
        assert_eq!(key_of(&bearer(), &["Bearer invented", "Bearer real"]), Some(Key::global()));
        assert_eq!(key_of(&bearer(), &["Basic dG9rOg==", "Bearer real"]), Some(Key::global()));
        assert_eq!(key_of(&bearer(), &["Basic dG9rOg==", "Token x"]), None);
        // The same user with two passwords is one user.
        assert_eq!(key_of(&basic_user(), &["Basic YWRhOjE=", "Basic YWRhOjI="]), Some(Key::from("ada")));
    }

    #[test]
    fn every_spelling_of_a_basic_user_is_one_key() {
        for line in [
            "Basic YWRhOjEyMzQ=",     // ada:1234
            "basic  YWRhOjEyMzQ=",    // ada:1234
            "Basic YWRhOjEyMzQ",      // without padding
            "Basic YWRhOjEyMzR=",     // other trailing bits
            "Basic YWRhOnF3ZXJ0eQ==", // ada:qwerty
            "Basic YWRhOmE6Yg==",     // ada:a:b
            "Basic YWRhOg==",         // ada:
            "Basic YWRhOj8-Pz8_",     // ada:?>???, in the alphabet for URLs
            "Basic YW~RhOjEyMzQ.",    // with characters that are ignored
            "Basic YWRhOjEyM",        // ada:12, and half a byte
        ] {
            assert_eq!(key_of(&basic_user(), &[line]), Some(Key::from("ada")), "{line:?}");
        }
        assert_eq!(key_of(&basic_user(), &["Basic w7w6eA=="]), Some(Key::from("\u{fc}")), "\u{fc}:x");
    }

    #[test]
    fn malformed_basic_credentials_are_no_key() {
        for line in [
            "Basic",
            "Basic YWRh",     // ada, without a colon
            "Basic YWRhADox", // ada, NUL, :1
            "Basic YWRhOjEyMzQ=x",
            "Basic YWRhOjEy MzQ=",
            "Basic Y",
            "Basic ada:1234",
            "Bearer YWRhOjEyMzQ=",
        ] {
            assert_eq!(key_of(&basic_user(), &[line]), None, "{line:?}");
        }
        assert!(key_of(&basic_user(), &["Basic OjEyMzQ="]).unwrap().is_empty(), "no user before the colon");
    }
}
