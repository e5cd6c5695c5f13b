//! How long a response asks clients to wait.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};
use tollgate_core::Timestamp;

use super::grpc;

/// Whether a response with this status and these headers is a refusal for a time.
pub(super) fn is_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_http_refusal =
        [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::FORBIDDEN];
    is_http_refusal.contains(&status) || grpc::is_refusal(headers)
}

/// The pause that a response asks for. `now` counts if the response has no `Date`.
pub(super) fn pause(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let of_refusal = || grpc::pause(headers).or_else(|| retry_after(headers, now));
    let asked = is_refusal(status, headers).then(of_refusal).flatten();
    let pause = asked.or_else(|| used_up(headers, now));
    pause.filter(|pause| !pause.is_zero())
}

fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let until = || since_epoch(text).map(|until| until.saturating_sub(sent(headers, now)));
    seconds(text).map(|number| wait(number, headers, now)).or_else(until)
}

/// When the response was sent, since the epoch: by the origin's clock, as this process may have
/// started before its own was set.
fn sent(headers: &HeaderMap, now: Timestamp) -> Duration {
    let date = headers.get(DATE).and_then(|date| since_epoch(date.to_str().ok()?));
    date.unwrap_or(Duration::from_micros(now.as_micros()))
}

fn since_epoch(date: &str) -> Option<Duration> {
    httpdate::parse_http_date(date).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()
}

/// The wait that a number means: seconds, or a time since the epoch if it is that large.
fn wait(number: u64, headers: &HeaderMap, now: Timestamp) -> Duration {
    let wait = Duration::from_secs(number);
    if number < IS_A_TIME { wait } else { wait.saturating_sub(sent(headers, now)) }
}

/// No pause lasts 31 years, so such a number of seconds is a time since the epoch.
const IS_A_TIME: u64 = 1_000_000_000;

/// The time until a quota is back of which nothing remains.
fn used_up(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let number = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).and_then(seconds);
    let of_fields = |[remaining, reset]: [&str; 2]| number(reset).filter(|_| number(remaining) == Some(0));
    let lines = || headers.get_all("ratelimit").iter().map(HeaderValue::as_bytes);
    let reset = of_fields(["ratelimit-remaining", "ratelimit-reset"])
        .or_else(|| lines().filter_map(of_list).max())
        .or_else(|| of_dictionary(lines().next()?))
        .or_else(|| of_fields(["x-ratelimit-remaining", "x-ratelimit-reset"]))?;
    Some(wait(reset, headers, now))
}

fn of_list(line: &[u8]) -> Option<u64> {
    let list: List = Parser::new(line).parse().ok()?;
    let item = |entry: &ListEntry| match entry {
        ListEntry::Item(item) => when_used_up(&item.params),
        ListEntry::InnerList(_) => None,
    };
    list.iter().filter_map(item).max()
}

fn when_used_up(parameters: &Parameters) -> Option<u64> {
    let number = |name| parameters.get(name).and_then(whole);
    number("t").filter(|_| number("r") == Some(0))
}

fn of_dictionary(line: &[u8]) -> Option<u64> {
    let fields: Dictionary = Parser::new(line).parse().ok()?;
    let number = |name| match fields.get(name) {
        Some(ListEntry::Item(item)) => whole(&item.bare_item),
        _ => None,
    };
    number("reset").filter(|_| number("remaining") == Some(0))
}

/// A number without a sign. A fraction rounds up.
fn whole(item: &BareItem) -> Option<u64> {
    match item {
        BareItem::Integer(number) => u64::try_from(i64::from(*number)).ok(),
        BareItem::Decimal(number) => {
            let thousandths = u64::try_from(i64::from(number.as_integer_scaled_1000())).ok()?;
            Some(thousandths.div_ceil(1_000))
        }
        _ => None,
    }
}

/// A number of seconds without a sign, which `str::parse` would accept. A fraction rounds up.
fn seconds(text: &str) -> Option<u64> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // A number too large is a long pause.
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    Some(whole.saturating_add(fraction.bytes().any(|digit| digit != b'0').into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        // 2026-01-01 00:00:00.
        let now = Timestamp::from_micros(1_767_225_600_000_000);
        pause(StatusCode::from_u16(status).unwrap(), &headers, now).map(|pause| pause.as_secs())
    }

    #[test]
    fn retry_after_counts_on_a_refusal_in_seconds_or_as_a_date() {
        assert_eq!(asked(429, &[("retry-after", "7")]), Some(7));
        assert_eq!(asked(503, &[("retry-after", " 7 ")]), Some(7));
        assert_eq!(asked(429, &[("retry-after", "Thu, 01 Jan 2026 00:01:00 GMT")]), Some(60));
        let forever = asked(429, &[("retry-after", "99999999999999999999")]);
        assert!(forever.unwrap() > u64::MAX / 2, "{forever:?}");
        for late in ["Thu, 01 Jan 1970 00:00:00 GMT", "0"] {
            assert_eq!(asked(429, &[("retry-after", late)]), None, "{late}");
        }
        for (fraction, up) in [("1.5", 2), ("2.0", 2), ("0.001", 1), ("64.57", 65)] {
            assert_eq!(asked(429, &[("retry-after", fraction)]), Some(up), "{fraction}");
        }
        for bad in ["", "-1", "+1", "1.", ".5", "1.5.1", "1e3", "soon", "Thu, 32 Jan 2026 00:01:00 GMT"] {
            assert_eq!(asked(429, &[("retry-after", bad)]), None, "{bad}");
        }
        assert_eq!(asked(403, &[("retry-after", "7")]), Some(7));
        assert_eq!(asked(403, &[]), None);
        assert_eq!(asked(301, &[("retry-after", "7")]), None);
        // A refused gRPC call is an HTTP 200.
        assert_eq!(asked(200, &[("grpc-status", "8"), ("retry-after", "7")]), Some(7));
        let pushback = [("grpc-status", "14"), ("grpc-retry-pushback-ms", "3000"), ("retry-after", "7")];
        assert_eq!(asked(200, &pushback), Some(3));
        assert_eq!(asked(200, &[("grpc-status", "3"), ("grpc-retry-pushback-ms", "3000")]), None);
    }

    #[test]
    fn a_date_counts_from_the_date_of_the_response() {
        let asked = |sent: &str, until: &str| asked(429, &[("date", sent), ("retry-after", until)]);
        let (later, in_2030) = ("Tue, 01 Jan 2030 00:01:00 GMT", "Tue, 01 Jan 2030 00:00:00 GMT");
        assert_eq!(asked(in_2030, later), Some(60));
        assert_eq!(asked(later, in_2030), None);
        assert_eq!(asked("soon", "Thu, 01 Jan 2026 00:01:00 GMT"), Some(60), "the time of this process");
        assert_eq!(asked(in_2030, "7"), Some(7));
    }

    #[test]
    fn a_large_number_is_a_time_since_the_epoch() {
        let in_a_minute = "1767225660";
        let date = ("date", "Thu, 01 Jan 2026 00:00:50 GMT");
        for of in [
            [("retry-after", in_a_minute), ("x-other", "")],
            [("ratelimit-remaining", "0"), ("ratelimit-reset", in_a_minute)],
            [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", in_a_minute)],
            [("ratelimit", "limit=5, remaining=0, reset=1767225660"), ("x-other", "")],
            [("ratelimit", r#""a";r=0;t=1767225660"#), ("x-other", "")],
        ] {
            assert_eq!(asked(429, &of), Some(60), "{of:?}");
            assert_eq!(asked(429, &[of[0], of[1], date]), Some(10), "{of:?}");
        }
        assert_eq!(asked(429, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "1767225599")]), None);
        assert_eq!(asked(429, &[("retry-after", "999999999")]), Some(999_999_999));
    }

    #[test]
    fn the_longest_reset_of_a_used_up_quota_counts() {
        let list = r#""burst";r=0;t=2, "daily";r=0;t=60, "hourly";r=1;t=600"#;
        assert_eq!(asked(200, &[("ratelimit", list)]), Some(60));
        assert_eq!(asked(200, &[("ratelimit", r#""a";r=1;t=2"#), ("ratelimit", r#""b";r=0;t=3"#)]), Some(3));
        assert_eq!(asked(200, &[("ratelimit", "limit=5, remaining=0, reset=9")]), Some(9));
        assert_eq!(asked(200, &[("ratelimit", "limit=5, remaining=1, reset=9")]), None);
        assert_eq!(asked(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "4")]), Some(4));
        assert_eq!(asked(200, &[("ratelimit-remaining", "3"), ("ratelimit-reset", "4")]), None);
        assert_eq!(asked(200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "4")]), Some(4));
        assert_eq!(asked(200, &[("ratelimit", r#""a";r=0;t=4.2"#)]), Some(5));
        for bad in ["", "r=0", r#""a";r=0"#, r#""a";r=0;t=-1"#, r#""a";r=0;t="1""#, r#"("a");r=0;t=1"#, "\"a"]
        {
            assert_eq!(asked(200, &[("ratelimit", bad)]), None, "{bad}");
        }
        let of_bytes = [
            ("ratelimit-policy", r#""upload";q=1000000;qu="content-bytes";w=60;pk=:YQ==:"#),
            ("ratelimit", r#""upload";r=0;t=8;qu="content-bytes";pk=:YQ==:"#),
        ];
        assert_eq!(asked(200, &of_bytes), Some(8), "parameters that it does not know are ignored");
        // What a refusal says by itself is exact.
        assert_eq!(asked(429, &[("ratelimit", list), ("retry-after", "5")]), Some(5));
    }
}
