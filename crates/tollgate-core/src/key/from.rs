//! The types of which keys are made.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Key, NEGATIVE, NUMBER};

/// Makes types of text keys. Equal text is one key, whatever type holds it.
macro_rules! from_text {
    ($($text:ty),+ $(,)?) => {
        $(impl From<$text> for Key {
            fn from(text: $text) -> Key {
                Key::from_bytes(text.as_bytes())
            }
        })+
    };
}

from_text!(&str, String, &String, Box<str>, Arc<str>, &Arc<str>, Cow<'_, str>);

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key::from_bytes(bytes)
    }
}

/// Such as a digest. Equals the key of the same bytes as text.
impl<const N: usize> From<[u8; N]> for Key {
    fn from(bytes: [u8; N]) -> Key {
        Key::from_bytes(&bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(bytes: &[u8; N]) -> Key {
        Key::from_bytes(bytes)
    }
}

impl From<u128> for Key {
    fn from(number: u128) -> Key {
        let bytes = number.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Key::tagged(NUMBER, &bytes[zeros..])
    }
}

impl From<i128> for Key {
    fn from(number: i128) -> Key {
        let size = number.unsigned_abs();
        match u64::try_from(size) {
            _ if number >= 0 => Key::from(size),
            Ok(short) => Key::tagged(NEGATIVE, &short.to_be_bytes()),
            Err(_) => Key::tagged(NEGATIVE, &size.to_be_bytes()),
        }
    }
}

impl From<usize> for Key {
    fn from(number: usize) -> Key {
        Key::from(number as u128)
    }
}

impl From<isize> for Key {
    fn from(number: isize) -> Key {
        Key::from(number as i128)
    }
}

/// Makes numbers keys. Equal numbers are one key, whatever type holds them.
macro_rules! from_number {
    ($wide:ty: $($number:ty),+) => {
        $(impl From<$number> for Key {
            fn from(number: $number) -> Key {
                Key::from(<$wide>::from(number))
            }
        })+
    };
}

from_number!(u128: u8, u16, u32, u64);
from_number!(i128: i8, i16, i32, i64);

/// Feature `uuid`. Equals the key of its text in lower case with hyphens.
#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    fn from(uuid: uuid::Uuid) -> Key {
        Key::from(&*uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()))
    }
}

/// Feature `uuid`. Equals the key of its text in lower case with hyphens.
#[cfg(feature = "uuid")]
impl From<&uuid::Uuid> for Key {
    fn from(uuid: &uuid::Uuid) -> Key {
        Key::from(*uuid)
    }
}

/// An IPv6 address counts by its /64, as extractors do by default. For the whole address, of which
/// a customer has 2^64, use [`Key::network`] with 128.
impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Key {
        Key::network(address, 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_key_in_whatever_type_it_is_held() {
        let text = Key::from("abc");
        let shared: Arc<str> = "abc".into();
        for key in [
            Key::from("abc".to_owned()),
            Key::from(Box::<str>::from("abc")),
            Key::from(&shared),
            Key::from(shared),
            Key::from(Cow::Borrowed("abc")),
            Key::from(b"abc"),
            Key::from(*b"abc"),
            Key::from(&b"abc"[..]),
        ] {
            assert_eq!(key, text);
        }
        let seven = Key::from(7_u64);
        for key in [Key::from(7_u8), Key::from(7_u16), Key::from(7_i8), Key::from(7_isize), Key::from(7_i128)]
        {
            assert_eq!(key, seven);
        }
        assert_eq!(Key::from(-7_i8), Key::from(-7_i128));
        assert_eq!(Key::from(i64::MIN), Key::from(i128::from(i64::MIN)));
        assert_eq!(Key::from(i128::MIN).to_string(), i128::MIN.to_string());
        assert!(Key::from([]).is_empty());
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn a_uuid_is_the_key_of_its_text_without_an_allocation() {
        let uuid = uuid::Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
        assert_eq!(Key::from(&uuid), Key::from("67e55044-10b1-426f-9247-bb680e5fe0c8"));
        assert!(matches!(Key::from(uuid).0, super::super::Encoded::Inline { .. }));
    }
}
