//! How long a caller waits for its answer, by a header of its request.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const CONNECT_TIMEOUT_MS: HeaderName = HeaderName::from_static("connect-timeout-ms");

/// The deadline of a request: the shortest of `grpc-timeout`, `connect-timeout-ms` and the header
/// of that name. A value that cannot be read is no deadline.
pub(crate) fn deadline(headers: &HeaderMap, name: Option<&HeaderName>) -> Option<Duration> {
    let grpc = headers.get(GRPC_TIMEOUT).and_then(grpc_timeout);
    let connect = headers.get(CONNECT_TIMEOUT_MS).and_then(millis);
    let own = name.and_then(|name| headers.get(name)).and_then(millis);
    [grpc, connect, own].into_iter().flatten().min()
}

fn millis(value: &HeaderValue) -> Option<Duration> {
    digits(value.as_bytes()).map(Duration::from_millis)
}

/// At most eight digits and a unit: see the
/// [specification](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    let (unit, number) = value.as_bytes().split_last()?;
    let number = digits(number).filter(|_| number.len() <= 8)?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A decimal number without a sign, which `str::parse` would accept.
fn digits(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&str, &str)]) -> Option<u128> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        deadline(&headers, Some(&HeaderName::from_static("x-timeout"))).map(|deadline| deadline.as_nanos())
    }

    #[test]
    fn each_unit_of_grpc_timeout_is_read() {
        for (value, nanos) in [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("300m", 300_000_000),
            ("5u", 5_000),
            ("6n", 6),
            ("99999999H", 359_999_996_400_000_000_000),
            ("0m", 0),
        ] {
            assert_eq!(of(&[("grpc-timeout", value)]), Some(nanos), "{value}");
        }
        for value in ["", "1", "m", "1s", "-1m", "+1m", "1.5S", " 1S", "1 S", "123456789m"] {
            assert_eq!(of(&[("grpc-timeout", value)]), None, "{value:?}");
        }
    }

    #[test]
    fn other_headers_are_in_whole_milliseconds_and_the_shortest_counts() {
        assert_eq!(of(&[("x-timeout", "300")]), Some(300_000_000));
        assert_eq!(of(&[("connect-timeout-ms", "20")]), Some(20_000_000));
        for value in ["", "1.5", "-1", "+1", "1s", "99999999999999999999"] {
            assert_eq!(of(&[("x-timeout", value)]), None, "{value:?}");
        }
        let both = [("grpc-timeout", "2S"), ("connect-timeout-ms", "x"), ("x-timeout", "300")];
        assert_eq!(of(&both), Some(300_000_000));
        assert_eq!(of(&[("another", "1")]), None);
    }
}
