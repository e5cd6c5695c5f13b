//! How long a response asks clients to wait.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};
use tollgate_core::Timestamp;

use super::grpc;

/// Whether a response with this status and these headers is a refusal for a time.
pub(super) fn is_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_http_refusal = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
    is_http_refusal || grpc::is_refusal(headers)
}

/// The pause that a response asks for. `now` counts if the response has no `Date`.
pub(super) fn pause(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let of_refusal = || grpc::pause(headers).or_else(|| retry_after(headers, now));
    let asked = is_refusal(status, headers).then(of_refusal).flatten();
    asked.or_else(|| used_up(headers)).filter(|pause| !pause.is_zero())
}

fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Some(pause) = seconds(text) {
        return Some(pause);
    }
    // By the origin's clock, since this process may have started before its own was set.
    let sent = headers.get(DATE).and_then(|date| since_epoch(date.to_str().ok()?));
    Some(since_epoch(text)?.saturating_sub(sent.unwrap_or(Duration::from_micros(now.as_micros()))))
}

fn since_epoch(date: &str) -> Option<Duration> {
    httpdate::parse_http_date(date).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()
}

/// The time until a quota is back of which nothing remains.
fn used_up(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| headers.get(name).and_then(|value| value.to_str().ok()).and_then(seconds);
    if number("ratelimit-remaining") == Some(Duration::ZERO) {
        return number("ratelimit-reset");
    }
    let lines = || headers.get_all("ratelimit").iter().map(HeaderValue::as_bytes);
    lines().filter_map(of_list).max().or_else(|| of_dictionary(lines().next()?))
}

fn of_list(line: &[u8]) -> Option<Duration> {
    let list: List = Parser::new(line).parse().ok()?;
    let item = |entry: &ListEntry| match entry {
        ListEntry::Item(item) => when_used_up(&item.params),
        ListEntry::InnerList(_) => None,
    };
    list.iter().filter_map(item).max()
}

fn when_used_up(parameters: &Parameters) -> Option<Duration> {
    let number = |name| parameters.get(name).and_then(integer);
    (number("r")? == 0).then(|| number("t").map(Duration::from_secs)).flatten()
}

fn of_dictionary(line: &[u8]) -> Option<Duration> {
    let fields: Dictionary = Parser::new(line).parse().ok()?;
    let number = |name| match fields.get(name) {
        Some(ListEntry::Item(item)) => integer(&item.bare_item),
        _ => None,
    };
    (number("remaining")? == 0).then(|| number("reset").map(Duration::from_secs)).flatten()
}

fn integer(item: &BareItem) -> Option<u64> {
    item.as_integer().and_then(|number| u64::try_from(i64::from(number)).ok())
}

/// A whole number of seconds without a sign, which `str::parse` would accept.
fn seconds(text: &str) -> Option<Duration> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large is a long pause.
    is_number.then(|| Duration::from_secs(text.parse().unwrap_or(u64::MAX)))
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
        assert_eq!(asked(429, &[("retry-after", "99999999999999999999")]), Some(u64::MAX));
        for late in ["Thu, 01 Jan 1970 00:00:00 GMT", "0"] {
            assert_eq!(asked(429, &[("retry-after", late)]), None, "{late}");
        }
        for bad in ["", "-1", "+1", "1.5", "soon", "Thu, 32 Jan 2026 00:01:00 GMT"] {
            assert_eq!(asked(429, &[("retry-after", bad)]), None, "{bad}");
        }
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
    fn the_longest_reset_of_a_used_up_quota_counts() {
        let list = r#""burst";r=0;t=2, "daily";r=0;t=60, "hourly";r=1;t=600"#;
        assert_eq!(asked(200, &[("ratelimit", list)]), Some(60));
        assert_eq!(asked(200, &[("ratelimit", r#""a";r=1;t=2"#), ("ratelimit", r#""b";r=0;t=3"#)]), Some(3));
        assert_eq!(asked(200, &[("ratelimit", "limit=5, remaining=0, reset=9")]), Some(9));
        assert_eq!(asked(200, &[("ratelimit", "limit=5, remaining=1, reset=9")]), None);
        assert_eq!(asked(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "4")]), Some(4));
        assert_eq!(asked(200, &[("ratelimit-remaining", "3"), ("ratelimit-reset", "4")]), None);
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
