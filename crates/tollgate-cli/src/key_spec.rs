//! A key on the command line, in the form of the names in Redis.

use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use tollgate_core::{Key, counted_address};

pub(crate) const HELP: &str = "\
The key, as the names in the Redis show it

alice or =alice   text, such as the value of a header; after = with % escapes
@192.0.2.1        an address; an IPv6 address is that of its /64, unless a /N follows
#42               a whole number
*                 the key that all callers share
(=acme,#42)       several keys together
0|=alice          a key of the first of several alternatives";

/// The addresses of a network are one key by default.
const V6_PREFIX: u8 = 64;

/// Parses a key. Errors are one line.
pub(crate) fn parse(text: &str) -> Result<Key, String> {
    let key = match signed(text) {
        Some(key) => key.map_err(|reason| format!("{text:?} is not a key: {reason}"))?,
        None if text.parse::<IpAddr>().is_ok() => {
            return Err(format!("{text} may be an address or a text: write '@{text}' or '={text}'"));
        }
        None if text.parse::<i128>().is_ok() => {
            return Err(format!("{text} may be a number or a text: write '#{text}' or '={text}'"));
        }
        None => Key::from(text),
    };
    if key.is_empty() { Err(format!("{text:?} is not a key: it is empty (see --help)")) } else { Ok(key) }
}

/// Returns the text of a key, as names in Redis show it.
pub(crate) fn text(key: &Key) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = key.write_text(&mut text);
    text
}

/// Parses a key that begins with the sign of its kind. `None` without a sign, and an error if what
/// follows the sign is not a key.
fn signed(text: &str) -> Option<Result<Key, String>> {
    let (sign, rest) = text.split_at_checked(1)?;
    Some(match sign {
        "*" if rest.is_empty() => Ok(Key::global()),
        "*" => Err("* stands alone".to_owned()),
        "=" => escaped(rest),
        "#" => number(rest),
        "@" => network(rest),
        "(" => joined(rest),
        _ => {
            let (branch, rest) = text.split_once('|')?;
            let branch = digits(branch)?;
            match signed(rest) {
                Some(key) => key.map(|key| key.of_branch(branch)),
                None => Err("the sign of a key follows |, such as 0|=alice".to_owned()),
            }
        }
    })
}

/// A number of digits only: `parse` would accept a sign too.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn escaped(text: &str) -> Result<Key, String> {
    let is_escape =
        |after: &str| after.get(..2).is_some_and(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if text.split('%').skip(1).all(is_escape) {
        Ok(Key::from_bytes(&percent_decode_str(text).collect::<Vec<_>>()))
    } else {
        Err("two hexadecimal digits follow each % after =: write %25 for a percent sign".to_owned())
    }
}

fn number(text: &str) -> Result<Key, String> {
    let key = match text.strip_prefix('-') {
        Some(below_zero) => digits::<u64>(below_zero).and(text.parse::<i64>().ok()).map(Key::from),
        None => digits::<u128>(text).map(Key::from),
    };
    key.ok_or_else(|| format!("a whole number from {} to {} follows #", i64::MIN, u128::MAX))
}

fn network(text: &str) -> Result<Key, String> {
    let text = percent_decode_str(text).decode_utf8_lossy();
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (&*text, None),
    };
    let address: IpAddr =
        address.parse().map_err(|_| "an address follows @, such as @192.0.2.1".to_owned())?;
    let Some(prefix) = prefix else { return Ok(Key::network(address, V6_PREFIX)) };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    match counted_address(address) {
        IpAddr::V4(v4) if digits(prefix) != Some(bits) => {
            Err(format!("{v4} is a key of its own: no network of IPv4 is a key, so leave out /{prefix}"))
        }
        _ => match digits(prefix).filter(|prefix| *prefix <= bits) {
            Some(prefix) => Ok(Key::network(address, prefix)),
            None => Err(format!("a number from 0 to {bits} follows /")),
        },
    }
}

/// Splits at the commas that are not in inner parentheses. Those of texts are escaped.
fn joined(text: &str) -> Result<Key, String> {
    let text = text.strip_suffix(')').ok_or("a parenthesis is not closed")?;
    let mut depth = 0_u32;
    let separates = |sign: char| {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    };
    let part = |part| {
        let key = signed(part).ok_or("each part has the sign of its kind, such as =acme")??;
        if key.is_empty() { Err("a part is empty".to_owned()) } else { Ok(key) }
    };
    text.split(separates).map(part).collect::<Result<Vec<Key>, String>>().map(Key::join)
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
        for whole in ["@192.0.2.1/32", "@::ffff:192.0.2.1", "@::ffff:192.0.2.1/128"] {
            assert_eq!(parse(whole), Ok(address("192.0.2.1")), "{whole}");
        }
    }

    #[test]
    fn what_may_be_of_two_kinds_is_refused() {
        for text in ["192.0.2.1", "::1", "42", "-7"] {
            assert!(parse(text).unwrap_err().contains(&format!("'={text}'")), "{text}");
        }
        for text in [
            "", "=", "*x", "#", "#x", "#+5", "#--5", "#1.5", "@", "@x", "@::1/", "@::1/+64", "@::1/129", "(",
            "()", "(a)", "(=a", "(=a,)", "(=a,=)", "1|", "1|x", "1|#+5",
        ] {
            assert!(parse(text).unwrap_err().contains("is not a key"), "{text:?}");
        }
    }

    #[test]
    fn a_prefix_without_effect_is_refused() {
        for text in ["@1.2.3.4/33", "@1.2.3.4/24", "@1.2.3.4/0", "@1.2.3.4/x", "@::ffff:1.2.3.4/120"] {
            let error = parse(text).unwrap_err();
            let reason = "1.2.3.4 is a key of its own: no network of IPv4 is a key, so leave out /";
            assert!(error.contains(reason), "{error}");
        }
        assert!(parse("@2001:db8::1/129").unwrap_err().ends_with("a number from 0 to 128 follows /"));
    }

    #[test]
    fn a_percent_sign_that_is_no_escape_is_refused() {
        for text in ["=100%", "=%", "=%2", "=a%zzb", "=%é", "(=a,=b%)"] {
            assert!(parse(text).unwrap_err().contains("write %25"), "{text}");
        }
        assert_eq!(parse("=100%25"), Ok(Key::from("100%")));
    }
}
