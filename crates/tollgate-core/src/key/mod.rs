//! Keys, which divide a quota among callers.

mod from;
mod long;
mod parse;
mod text;

use std::borrow::Borrow;
use std::fmt;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use smallvec::SmallVec;

use long::LongKey;

/// Divides a quota among callers (the IETF draft's partition key). A key is an address, an API key,
/// a user id, or several of these together.
///
/// A key stores the types of its parts, so different values never become one key. The text `"1"` is
/// not the number 1, and the pair `("a", "bc")` is not `("ab", "c")`. Text of up to 37 characters
/// (a UUID has 36) needs no allocation. Clones share longer text.
///
/// The empty key ([`Key::is_empty`]) belongs to no caller. Rules treat it as absent. For a store it
/// is a key like any other.
///
/// ```
/// use tollgate_core::Key;
///
/// assert_ne!(Key::from("1"), Key::from(1_u64));
/// let composite = Key::join([Key::from("acme"), Key::from(42_u64)]);
/// assert_eq!(composite.to_string(), "(acme,42)");
/// assert!(Key::from("").is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Encoded);

/// A tag and its value; no bytes for the empty key.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Encoded {
    /// Unused bytes are zero, so that derived equality holds.
    Inline {
        length: u8,
        bytes: [u8; INLINE],
    },
    Heap(Arc<[u8]>),
    /// Beyond [`Key::MAX_TEXT`] bytes.
    Long(Arc<LongKey>),
}

/// Fits a tag and a UUID in text. A key then takes 40 bytes.
const INLINE: usize = 38;

type Scratch = SmallVec<[u8; 128]>;

const TEXT: u8 = b't';
const NUMBER: u8 = b'n';
const NEGATIVE: u8 = b'-';
const NETWORK_V4: u8 = b'4';
const NETWORK_V6: u8 = b'6';
const GLOBAL: u8 = b'*';
const JOINED: u8 = b'(';
const BRANCH: u8 = b'|';

impl Key {
    /// The longest text of a key that stores keep as it is, in bytes. A key with a longer one has a
    /// digest in its place, in names and in counts of usage.
    pub const MAX_TEXT: usize = 128;

    const EMPTY: Key = Key(Encoded::Inline { length: 0, bytes: [0; INLINE] });

    /// The single key of a quota that all callers share.
    pub fn global() -> Key {
        Key::tagged(GLOBAL, &[])
    }

    /// A key from text that need not be UTF-8. Equals the key of the same `str`.
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Key {
        if bytes.is_empty() { Key::EMPTY } else { Key::tagged(TEXT, bytes) }
    }

    /// The network of an address: an IPv4 address itself, or the first `v6_prefix` bits of an IPv6
    /// address (at most 128). A single customer gets a /64 or more.
    ///
    /// An IPv6 address that stands for an IPv4 address counts as that address: see
    /// [`counted_address`].
    #[inline]
    pub fn network(address: IpAddr, v6_prefix: u8) -> Key {
        match counted_address(address) {
            IpAddr::V4(v4) => Key::tagged(NETWORK_V4, &v4.octets()),
            IpAddr::V6(v6) => Key::v6_network(v6, v6_prefix.min(128)),
        }
    }

    /// The first `prefix` bits, at most 128, of an address that counts as an IPv6 address.
    #[inline]
    fn v6_network(address: Ipv6Addr, prefix: u8) -> Key {
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
        let mut value = [prefix; 17];
        value[1..].copy_from_slice(&(address.to_bits() & mask).to_be_bytes());
        Key::tagged(NETWORK_V6, &value)
    }

    /// Joins several keys into one. Empty if there are none, or if one of them is empty.
    ///
    /// ```
    /// use tollgate_core::Key;
    ///
    /// let (tenant, user) = (Key::from("acme"), Key::from(42));
    /// assert_eq!(Key::join([&tenant, &user]), Key::join([tenant, user]));
    /// ```
    pub fn join(parts: impl IntoIterator<Item = impl Borrow<Key>>) -> Key {
        let mut joined = Scratch::new();
        for part in parts {
            let part: &Key = part.borrow();
            if part.is_empty() {
                return Key::EMPTY;
            }
            push_length(&mut joined, part.as_encoded().len());
            joined.extend_from_slice(part.as_encoded());
        }
        if joined.is_empty() { Key::EMPTY } else { Key::tagged(JOINED, &joined) }
    }

    /// Tags this key as the `n`th of several alternative sources. A value from one source then
    /// never equals the same value from another: a header `192.0.2.1` is not that address. The
    /// empty key stays empty.
    #[must_use]
    pub fn of_branch(self, n: u8) -> Key {
        if self.is_empty() {
            return self;
        }
        let mut branch = Scratch::new();
        branch.push(n);
        branch.extend_from_slice(self.as_encoded());
        Key::tagged(BRANCH, &branch)
    }

    /// Whether the key is empty. Such a key belongs to no caller, and rules treat it as absent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Encoded::Inline { length: 0, .. })
    }

    /// The unambiguous encoded form, for stores to hash. Stores keep such hashes, so a change of it
    /// is a change of their stored form.
    #[inline]
    pub fn as_encoded(&self) -> &[u8] {
        match &self.0 {
            Encoded::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Encoded::Heap(bytes) => bytes,
            Encoded::Long(key) => key.bytes(),
        }
    }

    /// Returns a digest of the encoded form, for a store that keeps digests of long keys.
    ///
    /// The digest of a key of more than [`Key::MAX_TEXT`] bytes is made once for all clones. So a
    /// slot that is renewed for hours is not hashed again for each renewal. `maker` tells makers of
    /// digests apart, such as stores with other secrets. The digest of the first maker is kept.
    pub fn digest_by(&self, maker: u64, digest: impl FnOnce(&[u8]) -> [u8; 16]) -> [u8; 16] {
        match &self.0 {
            Encoded::Long(key) => key.digest_by(maker, digest),
            _ => digest(self.as_encoded()),
        }
    }

    #[inline]
    fn tagged(tag: u8, value: &[u8]) -> Key {
        let length = 1 + value.len();
        match u8::try_from(length) {
            Ok(short) if length <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[0] = tag;
                bytes[1..length].copy_from_slice(value);
                Key(Encoded::Inline { length: short, bytes })
            }
            _ if length <= Key::MAX_TEXT => {
                Key(Encoded::Heap(iter::once(tag).chain(value.iter().copied()).collect()))
            }
            _ => Key(Encoded::Long(LongKey::new([&[tag], value].concat()))),
        }
    }
}

/// Returns the address as it is counted. An IPv6 address that stands for an IPv4 address is that
/// address: IPv4-mapped (`::ffff:0:0/96`), NAT64 (`64:ff9b::/96`, RFC 6052), 6to4 (`2002::/16`, RFC
/// 3056) or Teredo (`2001::/32`, RFC 4380).
///
/// The /64 would group these wrongly. It puts the whole IPv4 internet behind a NAT64 translator
/// into one key, and all users of a Teredo server into another. 6to4 gives each IPv4 address 65,536
/// networks of its own.
///
/// `64:ff9b:1::/48`, the local-use prefix of NAT64 (RFC 8215), stays as it is: the place of the
/// IPv4 address depends on the prefix length, and each network chooses its own.
///
/// ```
/// use std::net::IpAddr;
/// use tollgate_core::counted_address;
///
/// let counted = |address: &str| counted_address(address.parse::<IpAddr>().unwrap()).to_string();
/// assert_eq!(counted("64:ff9b::192.0.2.1"), "192.0.2.1");
/// assert_eq!(counted("2002:c000:201:5::9"), "192.0.2.1");
/// assert_eq!(counted("2001:db8::1"), "2001:db8::1");
/// ```
#[inline]
pub fn counted_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded_ipv4(v6).map_or(address, IpAddr::V4),
    }
}

fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let ipv4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        // IPv4-mapped, and NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => ipv4(high, low),
        // 6to4.
        [0x2002, high, low, ..] => ipv4(high, low),
        // Teredo, which inverts the client's address.
        [0x2001, 0, .., high, low] => ipv4(!high, !low),
        _ => None,
    }
}

/// Encodes a length below 255 in one byte, and others in that byte and four more.
fn push_length(encoded: &mut Scratch, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < u8::MAX => encoded.push(short),
        _ => {
            encoded.push(u8::MAX);
            // No key reaches 4 GiB: it comes from a request that was held in memory.
            encoded.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

fn pop_length(encoded: &[u8]) -> Option<(usize, &[u8])> {
    match encoded.split_first()? {
        (&u8::MAX, rest) => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            Some((u32::from_be_bytes(*length) as usize, rest))
        }
        (&short, rest) => Some((usize::from(short), rest)),
    }
}

/// Readable, for operators. Invalid UTF-8 is replaced.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_readable(self.as_encoded(), f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.to_string().escape_debug())
    }
}

fn write_readable(encoded: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some((tag, value)) = encoded.split_first() else { return Ok(()) };
    match *tag {
        GLOBAL => f.write_str("*"),
        NUMBER | NEGATIVE => {
            if *tag == NEGATIVE {
                f.write_str("-")?;
            }
            let number = value.iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
            write!(f, "{number}")
        }
        NETWORK_V4 => {
            let octets: [u8; 4] = value.try_into().unwrap_or_default();
            write!(f, "{}", Ipv4Addr::from(octets))
        }
        NETWORK_V6 => {
            let (prefix, octets) = value.split_first().unwrap_or((&0, &[]));
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(octets).unwrap_or_default());
            if *prefix == 128 { write!(f, "{address}") } else { write!(f, "{address}/{prefix}") }
        }
        BRANCH => {
            let (branch, rest) = value.split_first().unwrap_or((&0, &[]));
            write!(f, "{branch}|")?;
            write_readable(rest, f)
        }
        JOINED => {
            let mut rest = value;
            let mut separator = "(";
            while let Some((length, after)) = pop_length(rest) {
                let (part, after) = after.split_at(length.min(after.len()));
                f.write_str(separator)?;
                write_readable(part, f)?;
                (rest, separator) = (after, ",");
            }
            f.write_str(")")
        }
        _ => f.write_str(&String::from_utf8_lossy(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_takes_40_bytes_and_short_keys_need_no_allocation() {
        assert_eq!(size_of::<Option<Key>>(), 40);
        let inline = |key: Key| matches!(key.0, Encoded::Inline { .. });
        assert!(inline(Key::from("a UUID has thirty-six characters, so")));
        assert!(inline(Key::from("x".repeat(37))) && !inline(Key::from("x".repeat(38))));
        assert!(inline(Key::network("2001:db8::1".parse().unwrap(), 64)));
    }

    #[test]
    fn different_values_are_different_keys() {
        let (long, longer) = ("x".repeat(300), "x".repeat(301));
        let keys = [
            Key::from("1"),
            Key::from(1_u64),
            Key::from("192.0.2.1"),
            Key::from(IpAddr::from([192, 0, 2, 1])),
            Key::from("*"),
            Key::global(),
            Key::join([Key::from("a"), Key::from("bc")]),
            Key::join([Key::from("ab"), Key::from("c")]),
            Key::join([Key::from("a"), Key::from("b"), Key::from("c")]),
            Key::join([Key::join([Key::from("a"), Key::from("b")]), Key::from("c")]),
            Key::join([Key::from("a")]),
            Key::from("a"),
            Key::from("a").of_branch(0),
            Key::from("a").of_branch(1),
            Key::join([Key::from(&long), Key::from("a")]),
            Key::join([Key::from(&longer), Key::from("a")]),
            Key::from(""),
        ];
        for (i, a) in keys.iter().enumerate() {
            for (j, b) in keys.iter().enumerate() {
                assert_eq!(a == b, i == j, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn addresses_of_one_network_are_one_key() {
        let key = |text: &str, prefix| Key::network(text.parse().unwrap(), prefix);
        assert_eq!(key("2001:db8:1:2::3", 64), key("2001:db8:1:2:ffff::", 64));
        assert_ne!(key("2001:db8:1:2::3", 64), key("2001:db8:1:3::3", 64));
        assert_eq!(key("::ffff:192.0.2.1", 64), key("192.0.2.1", 64));
        assert_eq!(key("2001:db8::1", 0), key("::1", 0));
        assert_eq!(key("2001:db8::1", 200).to_string(), "2001:db8::1");
        assert_eq!(key("2001:db8::1", 64).to_string(), "2001:db8::/64");
    }

    #[test]
    fn an_ipv6_address_that_stands_for_an_ipv4_address_counts_as_it() {
        let key = |text: &str| Key::network(text.parse().unwrap(), 64);
        for address in [
            "::ffff:192.0.2.1",
            "64:ff9b::192.0.2.1",
            "64:ff9b::c000:201",
            "2002:c000:201::1",
            "2002:c000:201:ffff:ffff:ffff:ffff:ffff",
            // Teredo, with two servers, flags and ports.
            "2001:0:4136:e378:8000:63bf:3fff:fdfe",
            "2001:0:c000:227:0:1:3fff:fdfe",
        ] {
            assert_eq!(key(address), key("192.0.2.1"), "{address}");
            assert_ne!(key(address), key("192.0.2.2"), "{address}");
        }
    }

    /// Prefixes that only look alike, and those whose IPv4 address is at an unknown place.
    #[test]
    fn other_ipv6_addresses_are_grouped_by_their_network() {
        let key = |text: &str| Key::network(text.parse().unwrap(), 64);
        for (a, b) in [
            ("64:ff9b:1::192.0.2.1", "64:ff9b:1::192.0.2.2"),
            ("64:ff9b::1:0:c000:201", "64:ff9b::1:0:c000:202"),
            ("65:ff9b::192.0.2.1", "65:ff9b::192.0.2.2"),
            ("2003:c000:201::1", "2003:c000:201::2"),
            ("2001:1::3fff:fdfe", "2001:1::3fff:fdff"),
            ("2001:db8::3fff:fdfe", "2001:db8::3fff:fdff"),
            ("::192.0.2.1", "::192.0.2.2"),
        ] {
            assert_eq!(key(a), key(b), "{a}");
            assert_ne!(key(a), key("192.0.2.1"), "{a}");
        }
    }

    #[test]
    fn a_join_with_an_empty_part_is_empty() {
        assert!(Key::join([Key::from("a"), Key::from("")]).is_empty());
        assert!(Key::join([] as [Key; 0]).is_empty());
        assert!(Key::from("").of_branch(1).is_empty());
    }

    #[test]
    fn display_is_readable_for_each_kind_of_key() {
        let joined = Key::join([Key::from("x".repeat(256)), Key::from(7_u32).of_branch(1)]);
        assert_eq!(joined.to_string(), format!("({},1|7)", "x".repeat(256)));
        assert_eq!(Key::from(u128::MAX).to_string(), u128::MAX.to_string());
        assert_eq!(Key::from(0_u64).to_string(), "0");
        assert_eq!(Key::from(i64::MIN).to_string(), i64::MIN.to_string());
        assert_eq!(Key::from(7), Key::from(7_usize));
        assert_ne!(Key::from(-7), Key::from(7));
        assert_eq!(format!("{:?}", Key::from("a\nb")), "Key(a\\nb)");
    }
}
