//! A key from its text.

use std::borrow::Cow;
use std::net::IpAddr;
use std::str::FromStr;

use super::{Key, counted_address};
use crate::text_error::TextError;

/// The addresses of a network are one key by default.
const V6_PREFIX: u8 = 64;

/// How many keys may contain each other. Each is a call of the parser.
const MOST_LEVELS: u32 = 16;

type WhyNoKey = Cow<'static, str>;

/// The inverse of [`Key::write_text`] and [`Key::to_readable`], for what operators type. Text needs
/// no `=`, unless it may be a key of another kind, and an IPv6 address without a prefix is that of
/// its /64. Keys within keys are read up to 16 levels deep.
///
/// ```
/// use tollgate_core::Key;
///
/// assert_eq!("alice".parse(), Ok(Key::from("alice")));
/// assert_eq!("(=acme%3Aeu,#42)".parse(), Ok(Key::join([Key::from("acme:eu"), Key::from(42)])));
/// let error = "42".parse::<Key>().unwrap_err();
/// assert_eq!(error.to_string(), "\"42\" is not a key: it may be a number or a text: write '#42' or '=42'");
/// ```
impl FromStr for Key {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Key, TextError> {
        let key = match signed(text, MOST_LEVELS) {
            Some(key) => key,
            None if may_be_network(text) => {
                Err(format!("it may be an address or a text: write '@{text}' or '={text}'").into())
            }
            None if text.parse::<i128>().is_ok() => {
                Err(format!("it may be a number or a text: write '#{text}' or '={text}'").into())
            }
            None => Ok(Key::from(text)),
        };
        let key = key.and_then(|key| if key.is_empty() { Err("it is empty".into()) } else { Ok(key) });
        key.map_err(|reason| TextError::new(text, format!("a key: {reason}")))
    }
}

/// Whether it is an address, or one with a prefix.
fn may_be_network(text: &str) -> bool {
    let address = text.split_once('/').filter(|(_, prefix)| digits::<u8>(prefix).is_some());
    address.map_or(text, |(address, _)| address).parse::<IpAddr>().is_ok()
}

/// Parses a key that begins with the sign of its kind, and has at most so many levels. `None`
/// without a sign, and an error if what follows the sign is not a key.
fn signed(text: &str, levels: u32) -> Option<Result<Key, WhyNoKey>> {
    let (sign, rest) = text.split_at_checked(1)?;
    Some(match sign {
        "*" if rest.is_empty() => Ok(Key::global()),
        "*" => Err("* stands alone".into()),
        "=" => escaped(rest),
        "#" => number(rest),
        "@" => network(rest),
        "(" => below(levels).and_then(|levels| joined(rest, levels)),
        _ => {
            let (branch, rest) = text.split_once('|')?;
            let branch = digits(branch)?;
            match below(levels).map(|levels| signed(rest, levels)) {
                Ok(Some(key)) => key.map(|key| key.of_branch(branch)),
                Ok(None) => Err("the sign of a key follows |, such as 0|=alice".into()),
                Err(reason) => Err(reason),
            }
        }
    })
}

/// The levels that are left within a key of so many.
fn below(levels: u32) -> Result<u32, WhyNoKey> {
    levels.checked_sub(1).ok_or_else(|| format!("it has more than {MOST_LEVELS} levels").into())
}

/// A number of digits only: `parse` would accept a sign too.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The bytes of a text with `%` and two hex digits for some of them. `None` if two do not follow.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (hex, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+'))?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(bytes)
}

fn escaped(text: &str) -> Result<Key, WhyNoKey> {
    let bytes = unescaped(text)
        .ok_or("two hexadecimal digits follow each % after =: write %25 for a percent sign")?;
    Ok(Key::from_bytes(&bytes))
}

fn number(text: &str) -> Result<Key, WhyNoKey> {
    let key = match text.strip_prefix('-') {
        Some(below_zero) => digits::<u128>(below_zero).and(text.parse::<i128>().ok()).map(Key::from),
        None => digits::<u128>(text).map(Key::from),
    };
    key.ok_or_else(|| format!("a whole number from {} to {} follows #", i128::MIN, u128::MAX).into())
}

fn network(text: &str) -> Result<Key, WhyNoKey> {
    // Names have a whole address with its colons escaped. One with colons was typed.
    let default_prefix = if text.contains('%') { 128 } else { V6_PREFIX };
    let text = unescaped(text).and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (&*text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| "an address follows @, such as @192.0.2.1")?;
    let Some(prefix) = prefix else { return Ok(Key::network(address, default_prefix)) };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let number = digits(prefix).filter(|prefix| *prefix <= bits);
    if let (IpAddr::V6(v6), Some(prefix @ ..96)) = (address, number) {
        // It contains more than addresses that stand for IPv4 addresses.
        return Ok(Key::v6_network(v6, prefix));
    }
    match (number, counted_address(address)) {
        (number, IpAddr::V4(v4)) if number != Some(bits) => {
            Err(format!("{v4} is a key of its own: no network of IPv4 is a key, so leave out /{prefix}")
                .into())
        }
        (Some(prefix), _) => Ok(Key::network(address, prefix)),
        (None, _) => Err(format!("a number from 0 to {bits} follows /").into()),
    }
}

/// Splits at the commas that are not in inner parentheses. Those of texts are escaped.
fn joined(text: &str, levels: u32) -> Result<Key, WhyNoKey> {
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
        let key = signed(part, levels).ok_or("each part has the sign of its kind, such as =acme")??;
        if key.is_empty() { Err(WhyNoKey::from("a part is empty")) } else { Ok(key) }
    };
    text.split(separates).map(part).collect::<Result<Vec<Key>, WhyNoKey>>().map(Key::join)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Key, String> {
        text.parse().map_err(|error: TextError| error.to_string())
    }

    fn address(text: &str) -> Key {
        Key::network(text.parse().unwrap(), 64)
    }

    #[test]
    fn text_needs_no_sign_and_an_address_no_prefix() {
        assert_eq!(parse("alice"), Ok(Key::from("alice")));
        assert_eq!(parse("100%"), Ok(Key::from("100%")));
        assert_eq!(parse("a|b"), Ok(Key::from("a|b")));
        assert_eq!(parse("@2001:db8:1:2::3"), Ok(address("2001:db8:1:2::4")));
        assert_eq!(parse("@2001:db8::3/128"), Ok(Key::network("2001:db8::3".parse().unwrap(), 128)));
        for whole in ["@192.0.2.1", "@192.0.2.1/32", "@::ffff:192.0.2.1", "@::ffff:192.0.2.1/128"] {
            assert_eq!(parse(whole), Ok(address("192.0.2.1")), "{whole}");
        }
    }

    #[test]
    fn what_may_be_of_two_kinds_is_refused() {
        for text in ["192.0.2.1", "::1", "2001:db8::/64", "192.0.2.0/24", "42", "-7"] {
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

    /// Without a limit, the parser overflows the stack of its thread.
    #[test]
    fn a_key_of_more_than_16_levels_is_refused() {
        let within = |levels: usize| format!("{}=a{}", "(".repeat(levels), ")".repeat(levels));
        let behind = |levels: usize| format!("{}=a", "1|".repeat(levels));
        for text in [within(16), behind(16), format!("{}{}", "1|".repeat(8), within(8))] {
            let key = parse(&text).unwrap();
            assert_eq!((key.to_text(), parse(&key.to_readable())), (text, Ok(key)));
        }
        for text in [within(17), behind(17), within(1_000_000), behind(1_000_000)] {
            let error = parse(&text).unwrap_err();
            assert!(error.ends_with("is not a key: it has more than 16 levels"));
        }
    }

    #[test]
    fn a_percent_sign_that_is_no_escape_is_refused() {
        for text in ["=100%", "=%", "=%2", "=a%zzb", "=%é", "=%+1", "(=a,=b%)"] {
            assert!(parse(text).unwrap_err().contains("write %25"), "{text}");
        }
        assert_eq!(parse("=100%25"), Ok(Key::from("100%")));
    }

    /// A typed address is that of its /64. Without this, the name of a whole address would be read
    /// as its network.
    #[test]
    fn a_whole_address_is_read_from_its_name() {
        let whole = Key::network("2001:db8::1".parse().unwrap(), 128);
        assert_eq!(parse(&whole.to_text()), Ok(whole));
    }

    #[test]
    fn a_short_prefix_of_addresses_that_stand_for_ipv4_is_read() {
        for (within, prefix) in [("64:ff9b:1::1", 47), ("2001:db8::1", 16), ("2003::1", 15), ("::1", 0)] {
            let key = Key::network(within.parse().unwrap(), prefix);
            assert_eq!(parse(&key.to_text()), Ok(key), "{within}/{prefix}");
        }
    }

    fn any_key() -> impl Strategy<Value = Key> {
        let v6 = prop_oneof![
            any::<u128>(),
            any::<u128>().prop_map(|bits| 0x2001 << 112 | bits >> 32),
            any::<u128>().prop_map(|bits| 0x0064_ff9b << 96 | bits >> 64),
        ];
        let leaf = prop_oneof![
            prop::collection::vec(any::<u8>(), 1..60).prop_map(|bytes| Key::from_bytes(&bytes)),
            any::<u128>().prop_map(Key::from),
            any::<i128>().prop_map(Key::from),
            any::<u32>().prop_map(|bits| Key::from(IpAddr::from(bits.to_be_bytes()))),
            (v6, 0..=128_u8).prop_map(|(bits, prefix)| Key::network(bits.to_be_bytes().into(), prefix)),
            Just(Key::global()),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(Key::join),
                (inner, any::<u8>()).prop_map(|(key, branch)| key.of_branch(branch)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_key_is_read_from_its_text(key in any_key()) {
            prop_assert_eq!(parse(&key.to_text()), Ok(key.clone()));
            prop_assert_eq!(parse(&key.to_readable()), Ok(key));
        }

        #[test]
        fn any_text_is_a_key_or_an_error(text in "[=#@*(),|%0-9a-f:/é-]{0,20}") {
            if let Ok(key) = parse(&text) {
                prop_assert_eq!(parse(&key.to_text()), Ok(key));
            }
        }
    }
}
