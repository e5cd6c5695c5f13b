//! A key on the command line, in the form of the names in Redis.

use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use tollgate_core::Key;

pub(crate) const HELP: &str = "\
The key, as the names in the Redis show it

alice or =alice   text, such as the value of a header; after = with % escapes
@192.0.2.1        an address; an IPv6 address is that of its /64, unless a /N follows
#42               a number
*                 the key that all callers share
(=acme,#42)       several keys together
0|=alice          a key of the first of several alternatives";

/// The addresses of a network are one key by default.
const V6_PREFIX: u8 = 64;

/// Parses a key. Errors are one line.
pub(crate) fn parse(text: &str) -> Result<Key, String> {
    let key = match signed(text) {
        Some(key) => key,
        None if text.parse::<IpAddr>().is_ok() => {
            return Err(format!("{text} may be an address or a text: write '@{text}' or '={text}'"));
        }
        None if text.parse::<i128>().is_ok() => {
            return Err(format!("{text} may be a number or a text: write '#{text}' or '={text}'"));
        }
        None => Some(Key::from(text)),
    };
    key.filter(|key| !key.is_empty()).ok_or_else(|| format!("{text:?} is not a key (see --help)"))
}

/// Returns the text of a key, as names in Redis show it.
pub(crate) fn text(key: &Key) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = key.write_text(&mut text);
    text
}

/// Parses a key that begins with the sign of its kind. `None` without a sign, and `Some(None)` if
/// what follows the sign is not a key.
fn signed(text: &str) -> Option<Option<Key>> {
    let (sign, rest) = text.split_at_checked(1)?;
    Some(match sign {
        "*" => rest.is_empty().then(Key::global),
        "=" => Some(Key::from_bytes(&percent_decode_str(rest).collect::<Vec<_>>())),
        "#" if rest.starts_with('-') => rest.parse::<i64>().ok().map(Key::from),
        "#" => rest.parse::<u128>().ok().map(Key::from),
        "@" => network(rest),
        "(" => joined(rest),
        _ => {
            let (branch, rest) = text.split_once('|')?;
            let branch = branch.parse::<u8>().ok()?;
            signed(rest).flatten().map(|key| key.of_branch(branch))
        }
    })
}

fn network(text: &str) -> Option<Key> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, prefix.parse().ok().filter(|prefix| *prefix <= 128)?),
        None => (&*text, V6_PREFIX),
    };
    Some(Key::network(address.parse().ok()?, prefix))
}

/// Splits at the commas that are not in inner parentheses. Those of texts are escaped.
fn joined(text: &str) -> Option<Key> {
    let text = text.strip_suffix(')')?;
    let mut depth = 0_u32;
    let separates = |sign: char| {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    };
    let parts: Option<Vec<Key>> = text.split(separates).map(|part| signed(part).flatten()).collect();
    parts.map(Key::join)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Key {
        Key::network(text.parse().unwrap(), 64)
    }

    #[test]
    fn each_key_is_read_from_its_text_in_redis() {
        let inner = Key::join([Key::from("a,b"), address("2001:db8::1")]);
        for key in [
            Key::from("alice"),
            Key::from("a:b{c}%(d),e|f é"),
            Key::from_bytes(b"\xff\x00"),
            Key::from(42_u64),
            Key::from(u128::MAX),
            Key::from(-7_i64),
            address("192.0.2.1"),
            address("2001:db8:1:2::3"),
            Key::network("2001:db8::".parse().unwrap(), 56),
            Key::global(),
            inner.clone(),
            Key::join([inner.clone(), Key::from(1_u64).of_branch(1)]),
            inner.of_branch(0),
        ] {
            let text = text(&key);
            assert_eq!(parse(&text), Ok(key), "{text}");
        }
    }

    #[test]
    fn text_needs_no_sign_and_an_address_no_prefix() {
        assert_eq!(parse("alice"), Ok(Key::from("alice")));
        assert_eq!(parse("100%"), Ok(Key::from("100%")));
        assert_eq!(parse("a|b"), Ok(Key::from("a|b")));
        assert_eq!(parse("@2001:db8:1:2::3"), Ok(address("2001:db8:1:2::4")));
        assert_eq!(parse("@2001:db8::3/128"), Ok(Key::network("2001:db8::3".parse().unwrap(), 128)));
    }

    #[test]
    fn what_may_be_of_two_kinds_is_refused() {
        for text in ["192.0.2.1", "::1", "42", "-7"] {
            assert!(parse(text).unwrap_err().contains(&format!("'={text}'")), "{text}");
        }
        for text in
            ["", "=", "*x", "#", "#x", "@", "@x", "@::1/129", "(", "()", "(a)", "(=a", "(=a,)", "1|", "1|x"]
        {
            assert!(parse(text).unwrap_err().contains("is not a key"), "{text:?}");
        }
    }
}
