//! How long a refused gRPC call asks clients to wait.

use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderName};

/// Codes of [gRPC](https://grpc.io/docs/guides/status-codes/).
const RESOURCE_EXHAUSTED: &str = "8";
const UNAVAILABLE: &str = "14";

/// Whether these are the headers of a call that was refused for a time.
pub(super) fn is_refusal(headers: &HeaderMap) -> bool {
    matches!(text(headers, "grpc-status"), Some(RESOURCE_EXHAUSTED | UNAVAILABLE))
}

/// The pause that a refused call asks for: the pushback (gRFC A6), or the `RetryInfo` in the
/// details. Zero if a retry does not help.
pub(super) fn pause(headers: &HeaderMap) -> Option<Duration> {
    match text(headers, "grpc-retry-pushback-ms") {
        // A negative number, and one that cannot be read, mean that.
        Some(pushback) => Some(Duration::from_millis(pushback.parse().unwrap_or(0))),
        None => retry_delay(&BASE64.decode(text(headers, "grpc-status-details-bin")?).ok()?),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.get(HeaderName::from_static(name))?.to_str().ok()
}

/// Servers may pad, or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The delay of the `google.rpc.RetryInfo` among the details of a `google.rpc.Status`.
fn retry_delay(status: &[u8]) -> Option<Duration> {
    let details = WireFields(status).filter_map(|field| field.nested(3));
    details.filter_map(of_detail).next()
}

fn of_detail(detail: &[u8]) -> Option<Duration> {
    let part = |number| WireFields(detail).filter_map(|field| field.nested(number)).last();
    if !part(1)?.ends_with(b"/google.rpc.RetryInfo") {
        return None;
    }
    let delay = WireFields(part(2)?).filter_map(|field| field.nested(1)).last()?;
    let number = |number| WireFields(delay).filter_map(|field| field.number(number)).last().unwrap_or(0);
    let nanos = u32::try_from(number(2)).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    // A negative delay has the highest bit.
    i64::try_from(number(1)).ok()?;
    Some(Duration::new(number(1), nanos))
}

/// The fields of a message of Protocol Buffers, up to the first that is malformed: see its
/// [encoding](https://protobuf.dev/programming-guides/encoding/).
struct WireFields<'a>(&'a [u8]);

/// A field with its number.
enum WireField<'a> {
    Number(u64, u64),
    /// A string, bytes or a message.
    Nested(u64, &'a [u8]),
    /// A number of fixed length.
    Fixed,
}

impl<'a> WireField<'a> {
    fn number(&self, wanted: u64) -> Option<u64> {
        match self {
            WireField::Number(field, value) if *field == wanted => Some(*value),
            _ => None,
        }
    }

    fn nested(&self, wanted: u64) -> Option<&'a [u8]> {
        match self {
            WireField::Nested(field, bytes) if *field == wanted => Some(bytes),
            _ => None,
        }
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = WireField<'a>;

    fn next(&mut self) -> Option<WireField<'a>> {
        let tag = self.varint()?;
        let (field, kind) = (tag >> 3, tag & 7);
        Some(match kind {
            0 => WireField::Number(field, self.varint()?),
            2 => {
                let length = self.varint()?;
                WireField::Nested(field, self.take(length)?)
            }
            1 => self.take(8).map(|_| WireField::Fixed)?,
            5 => self.take(4).map(|_| WireField::Fixed)?,
            _ => return None,
        })
    }
}

impl<'a> WireFields<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// Seven bits a byte, the lowest first. All but the last byte have the highest bit set.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take(1)? else { return None };
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(fields: &[(&'static str, &str)]) -> Option<Duration> {
        let headers = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a header value")));
        pause(&headers.collect())
    }

    #[test]
    fn a_refusal_is_resource_exhausted_or_unavailable() {
        let refused = |code: &str| {
            is_refusal(&HeaderMap::from_iter([(
                HeaderName::from_static("grpc-status"),
                code.parse().unwrap(),
            )]))
        };
        for code in ["8", "14"] {
            assert!(refused(code), "{code}");
        }
        for code in ["0", "3", "13", "88", "", " 8 9"] {
            assert!(!refused(code), "{code}");
        }
        assert!(!is_refusal(&HeaderMap::new()));
    }

    #[test]
    fn a_pushback_counts_before_the_details() {
        // As Google's own library writes a QuotaFailure and a RetryInfo of 2.5 s.
        let details = concat!(
            "CAgSBGZ1bGwaOgordHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlF1b3RhRmFpbHVyZRILCgkKAXASBGZ1bGwa",
            "NgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIAhCAyrXuAQ==",
        );
        assert_eq!(asked(&[("grpc-status-details-bin", details)]), Some(Duration::from_millis(2_500)));
        for (pushback, pause) in [("1500", 1_500), ("0", 0), ("-1", 0), ("soon", 0)] {
            let fields = [("grpc-retry-pushback-ms", pushback), ("grpc-status-details-bin", details)];
            assert_eq!(asked(&fields), Some(Duration::from_millis(pause)), "{pushback}");
        }
        let unpadded = details.trim_end_matches('=');
        assert_eq!(asked(&[("grpc-status-details-bin", unpadded)]), Some(Duration::from_millis(2_500)));
        assert_eq!(asked(&[]), None);
    }

    proptest! {
        #[test]
        fn random_details_ask_for_no_pause(bytes: Vec<u8>) {
            prop_assert_eq!(retry_delay(&bytes), None);
        }

        #[test]
        fn damaged_details_do_not_panic(at in 0..200_usize, byte: u8, length in 0..200_usize) {
            let mut status = vec![0x1a, 0x36, 0x0a, 0x28];
            status.extend(b"type.googleapis.com/google.rpc.RetryInfo\x12\x0a\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01");
            prop_assert_eq!(retry_delay(&status), Some(Duration::from_millis(2_500)));
            if let Some(place) = status.get_mut(at) {
                *place = byte;
            }
            status.truncate(length);
            let _ = retry_delay(&status);
        }
    }
}
