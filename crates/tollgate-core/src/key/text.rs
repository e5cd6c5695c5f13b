//! A key as printable text: for stores that use it as a name, and for people.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{BRANCH, GLOBAL, JOINED, Key, NEGATIVE, NETWORK_V4, NETWORK_V6, NUMBER, pop_length};

impl Key {
    /// Writes the key as readable text. Different keys have different texts, so it can serve as a
    /// name.
    ///
    /// Text begins with `=`, numbers with `#`, addresses with `@`. `*` is the global key, `(…,…)` a
    /// joined one, and `1|…` the second of several alternatives. The output is graphic ASCII. In
    /// text and addresses, these bytes are written as `%` and two hex digits: braces, parentheses,
    /// colons, commas, bars, percent signs and all that are not graphic ASCII.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    ///
    /// ```
    /// use tollgate_core::Key;
    ///
    /// let mut text = String::new();
    /// Key::join([Key::from("acme:eu"), Key::from(42)]).write_text(&mut text)?;
    /// assert_eq!(text, "(=acme%3Aeu,#42)");
    /// # Ok::<(), std::fmt::Error>(())
    /// ```
    pub fn write_text(&self, out: &mut impl Write) -> fmt::Result {
        write_text::<false>(self.as_encoded(), out)
    }

    /// Returns what [`Key::write_text`] writes. It parses as this key, unless it is empty or has
    /// more than 16 levels.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_text(&mut text);
        text
    }

    /// Returns the key as people write it, for tables and logs: colons of addresses and letters of
    /// all scripts are not escaped. It parses as this key, as [`Key::to_text`] does.
    ///
    /// ```
    /// use tollgate_core::Key;
    ///
    /// let key = Key::network("2001:db8::1".parse()?, 64);
    /// assert_eq!((key.to_readable(), key.to_text()), ("@2001:db8::/64".into(), "@2001%3Adb8%3A%3A/64".into()));
    /// assert_eq!("@2001:db8::/64".parse(), Ok(key));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn to_readable(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_text::<true>(self.as_encoded(), &mut text);
        text
    }
}

fn write_text<const READABLE: bool>(encoded: &[u8], out: &mut impl Write) -> fmt::Result {
    let Some((tag, value)) = encoded.split_first() else { return Ok(()) };
    match *tag {
        GLOBAL => out.write_char('*'),
        NUMBER | NEGATIVE => {
            let sign = if *tag == NEGATIVE { "-" } else { "" };
            let number = value.iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
            write!(out, "#{sign}{number}")
        }
        NETWORK_V4 => {
            let octets: [u8; 4] = value.try_into().unwrap_or_default();
            write!(out, "@{}", Ipv4Addr::from(octets))
        }
        NETWORK_V6 => {
            let (prefix, octets) = value.split_first().unwrap_or((&0, &[]));
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(octets).unwrap_or_default());
            out.write_char('@')?;
            if READABLE {
                // A typed address without a prefix is that of its /64.
                return write!(out, "{address}/{prefix}");
            }
            write!(Escaped(out), "{address}")?;
            if *prefix == 128 { Ok(()) } else { write!(out, "/{prefix}") }
        }
        BRANCH => {
            let (branch, rest) = value.split_first().unwrap_or((&0, &[]));
            write!(out, "{branch}|")?;
            write_text::<READABLE>(rest, out)
        }
        JOINED => {
            let (mut rest, mut separator) = (value, '(');
            while let Some((length, after)) = pop_length(rest) {
                let (part, after) = after.split_at(length.min(after.len()));
                out.write_char(separator)?;
                write_text::<READABLE>(part, out)?;
                (rest, separator) = (after, ',');
            }
            out.write_char(')')
        }
        _ => {
            out.write_char('=')?;
            if READABLE { write_readable(value, out) } else { write_escaped(value, out) }
        }
    }
}

struct Escaped<'a, W>(&'a mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_escaped(text.as_bytes(), self.0)
    }
}

fn write_escaped(bytes: &[u8], out: &mut impl Write) -> fmt::Result {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| !is_plain(*byte)) {
        out.write_str(ascii(&rest[..at]))?;
        out.write_str(ascii(&ESCAPES[usize::from(rest[at])]))?;
        rest = &rest[at + 1..];
    }
    out.write_str(ascii(rest))
}

/// Escapes what a key cannot contain when it is typed, and what a terminal does not show.
fn write_readable(bytes: &[u8], out: &mut impl Write) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for sign in chunk.valid().chars() {
            let is_shown = sign.is_alphanumeric() || sign.is_ascii_graphic();
            if is_shown && !matches!(sign, '(' | ')' | ',' | '%') {
                out.write_char(sign)?;
            } else {
                write_escaped(sign.encode_utf8(&mut [0; 4]).as_bytes(), out)?;
            }
        }
        write_escaped(chunk.invalid(), out)?;
    }
    Ok(())
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'(' | b')' | b':' | b',' | b'|' | b'%')
}

/// `%00` to `%FF`. Formatting each byte takes ten times as long, and strangers choose the bytes.
const ESCAPES: [[u8; 3]; 256] = {
    let mut escapes = [*b"%00"; 256];
    let mut byte = 0;
    while byte < 256 {
        escapes[byte][1] = b"0123456789ABCDEF"[byte >> 4];
        escapes[byte][2] = b"0123456789ABCDEF"[byte & 15];
        byte += 1;
    }
    escapes
};

/// Graphic ASCII, which is always UTF-8.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn text(key: Key) -> String {
        key.to_text()
    }

    #[test]
    fn each_kind_of_key_has_its_own_form() {
        assert_eq!(text(Key::from("alice@example.com")), "=alice@example.com");
        assert_eq!(text(Key::from("{a}:b c%é|(,)")), "=%7Ba%7D%3Ab%20c%25%C3%A9%7C%28%2C%29");
        assert_eq!(text(Key::from_bytes(&[0, 0xff, b'x'])), "=%00%FFx");
        assert_eq!(text(Key::from(7)), "#7");
        assert_eq!(text(Key::from(0_u64)), "#0");
        assert_eq!(text(Key::from(i64::MIN)), format!("#{}", i64::MIN));
        assert_eq!(text(Key::from(IpAddr::from([192, 0, 2, 1]))), "@192.0.2.1");
        assert_eq!(text(Key::network("2001:db8::1".parse().unwrap(), 64)), "@2001%3Adb8%3A%3A/64");
        assert_eq!(text(Key::network("2001:db8::1".parse().unwrap(), 128)), "@2001%3Adb8%3A%3A1");
        assert_eq!(text(Key::global()), "*");
        assert_eq!(text(Key::from("a").of_branch(1)), "1|=a");
        assert_eq!(
            text(Key::join([Key::from("a"), Key::join([Key::from("b"), Key::from(1)])])),
            "(=a,(=b,#1))"
        );
        assert_eq!(text(Key::from("")), "");
    }

    #[test]
    fn people_read_colons_and_letters_without_escapes() {
        let text = |key: Key| key.to_readable();
        assert_eq!(text(Key::network("2001:db8::1".parse().unwrap(), 64)), "@2001:db8::/64");
        assert_eq!(text(Key::network("2001:db8::1".parse().unwrap(), 128)), "@2001:db8::1/128");
        assert_eq!(text(Key::from(IpAddr::from([192, 0, 2, 1]))), "@192.0.2.1");
        assert_eq!(text(Key::from("acme:eu|é|名")), "=acme:eu|é|名");
        assert_eq!(text(Key::from("a b,(%)\u{202e}\r")), "=a%20b%2C%28%25%29%E2%80%AE%0D");
        assert_eq!(text(Key::from_bytes(&[b'x', 0xff])), "=x%FF");
        let joined = Key::join([Key::from("acme:eu"), Key::from(42).of_branch(1)]);
        assert_eq!(text(joined), "(=acme:eu,1|#42)");
    }

    #[test]
    fn text_that_looks_like_another_key_is_escaped() {
        let forged = [Key::from("@192.0.2.1"), Key::from("a,=b"), Key::from("a),(=b"), Key::from("0|=a")];
        let real = [
            Key::from(IpAddr::from([192, 0, 2, 1])),
            Key::join([Key::from("a"), Key::from("b")]),
            Key::from("a").of_branch(0),
        ];
        for forged in &forged {
            for real in &real {
                assert_ne!(text(forged.clone()), text(real.clone()));
                assert_ne!(text(Key::join([forged.clone()])), text(real.clone()));
            }
        }
    }
}
