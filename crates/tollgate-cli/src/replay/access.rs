//! The common log format of web servers, and the combined one.
//!
//! `192.0.2.1 - ada [10/Oct/2026:13:55:36 -0700] "GET /a HTTP/1.1" 200 12 "referer" "user agent"`

use std::iter;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use http::header::{AUTHORIZATION, REFERER, USER_AGENT};
use humantime::parse_rfc3339;
use tollgate::Timestamp;

use super::line::{LogLine, request, timestamp};

const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// Parses a line in the common or in the combined format. Its time is a whole second.
pub(super) fn access_line(text: &[u8]) -> Result<LogLine, String> {
    let text = String::from_utf8_lossy(text);
    let mut rest = &*text;
    let fields: Vec<&str> = iter::from_fn(|| field(&mut rest)).collect();
    let [host, _, user, time, requested, _, _, more @ ..] = &fields[..] else {
        return Err("expected HOST - USER [TIME] \"REQUEST\" STATUS BYTES".to_owned());
    };
    let peer = host.parse().map_err(|_| format!("the host {host:?} is not an address"))?;
    let is_no_time = || format!("{time:?} is not a time such as 10/Oct/2026:13:55:36 -0700");
    let time = access_time(time).ok_or_else(is_no_time)?;
    let [method, target, _] = requested.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("{requested:?} is not a request such as GET / HTTP/1.1"));
    };
    let mut request = request(method, target, Some(peer))?;
    let credentials = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:")));
    let user = if *user == "-" { "-" } else { &credentials };
    let values = iter::once(user).chain(more.iter().copied());
    for (name, value) in [AUTHORIZATION, REFERER, USER_AGENT].into_iter().zip(values) {
        // Escapes stay: as a key, they are as good as what they stand for.
        if let (true, Ok(value)) = (value != "-", HeaderValue::from_bytes(value.as_bytes())) {
            request.headers_mut().insert(name, value);
        }
    }
    Ok(LogLine { time, request })
}

/// Takes the next field: `"…"` with escapes, `[…]`, or all up to a space.
fn field<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = rest.trim_start();
    let mut is_escaped = false;
    let is_end = |sign| {
        let was_escaped = is_escaped;
        is_escaped = sign == '\\' && !was_escaped;
        sign == '"' && !was_escaped
    };
    let (field, after) = match text.chars().next()? {
        '"' => text[1..].split_once(is_end)?,
        '[' => text[1..].split_once(']')?,
        _ => text.split_once(' ').unwrap_or((text, "")),
    };
    *rest = after;
    Some(field)
}

/// Parses `10/Oct/2026:13:55:36 -0700`.
fn access_time(text: &str) -> Option<Timestamp> {
    let (local, zone) = text.split_once(' ')?;
    let (date, clock) = local.split_once(':')?;
    let [day, month, year] = date.split('/').collect::<Vec<_>>().try_into().ok()?;
    let month = MONTHS.find(month).filter(|at| at % 3 == 0 && month.len() == 3)? / 3 + 1;
    let local = parse_rfc3339(&format!("{year}-{month:02}-{day}T{clock}Z")).ok()?;
    let is_number = |digits: &&str| digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_digit());
    let digits = zone.strip_prefix(['+', '-']).filter(is_number)?.parse::<u64>().ok()?;
    let offset = Duration::from_secs((digits / 100 * 60 + digits % 100) * 60);
    timestamp(if zone.starts_with('-') { local.checked_add(offset)? } else { local.checked_sub(offset)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::line::json_line;

    fn line(text: &str) -> Result<LogLine, String> {
        access_line(text.as_bytes())
    }

    #[test]
    fn a_combined_line_has_user_referer_and_user_agent() {
        let text = r#"2001:db8::1 - ada [10/Oct/2026:13:55:36 -0730] "POST /a?b=\"c HTTP/1.1" 200 - "-" "an \"agent\" \\ \xc3\xa9" 0.003"#;
        assert!(line(text).unwrap_err().contains("is not a path"));
        let LogLine { time, request } = line(&text.replace(r#"\"c"#, "%22c")).unwrap();
        assert_eq!(time.as_micros(), 1_791_667_536_000_000);
        assert_eq!((request.method().as_str(), request.uri().to_string().as_str()), ("POST", "/a?b=%22c"));
        assert_eq!(request.headers()[AUTHORIZATION], "Basic YWRhOg==");
        assert_eq!(request.headers()[USER_AGENT], r#"an \"agent\" \\ \xc3\xa9"#);
        assert!(!request.headers().contains_key(REFERER));
    }

    #[test]
    fn zones_are_subtracted_from_local_times() {
        let time =
            |zone: &str| access_time(&format!("01/Jan/2026:00:30:00 {zone}")).map(Timestamp::as_micros);
        let midnight = 1_767_225_600_000_000;
        assert_eq!(time("+0030"), Some(midnight));
        assert_eq!(time("-0100"), Some(midnight + 90 * 60_000_000));
        for zone in ["", "0030", "+003", "+00300", "+0x30", "+00:30", "*0030", "++030", "+0０"] {
            assert_eq!(time(zone), None, "{zone}");
        }
    }

    #[test]
    fn a_line_of_another_form_says_what_is_wrong() {
        let good = r#"192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 12"#;
        assert!(line(good).is_ok());
        for (from, to, reason) in [
            ("192.0.2.1", "unix:", "the host \"unix:\" is not an address"),
            ("10/Oct", "31/Feb", "31/Feb/2026:13:55:36 +0000\" is not a time"),
            ("10/Oct", "10/ctN", "is not a time"),
            ("2026:13", "1926:13", "is not a time"),
            ("2026:13", "9026:13", "is not a time"),
            ("]", "", "expected HOST"),
            ("GET / HTTP/1.1", "GET /", "is not a request"),
            ("GET / HTTP/1.1", r"\x16\x03\x01", "is not a request"),
            ("GET", "G(T", "\"G(T\" is not a method"),
            ("1.1\" 200 12", "1.1", "expected HOST"),
            (" 12", "", "expected HOST"),
        ] {
            let error = line(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(reason), "{to}: {error}");
        }
    }

    #[test]
    fn random_changes_of_lines_are_read_or_refused() {
        let access = r#"192.0.2.1 - a [10/Oct/2026:13:55:36 +0000] "GET /\" HTTP/1.1" 200 12 "\\" "é""#;
        let json =
            r#"{"time":"2026-05-04T15:04:05.1Z","allowed":true,"method":"GET","path":"/","checks":[]}"#;
        assert!(json_line(json.as_bytes()).is_ok());
        for _ in 0..20_000 {
            for (good, read) in [(access, access_line as fn(&[u8]) -> _), (json, json_line)] {
                let mut text = good.as_bytes().to_vec();
                for _ in 0..rand::random_range(1..5) {
                    let (at, to) = (rand::random_range(0..text.len()), rand::random_range(0..text.len()));
                    text[at] = if rand::random() { text[to] } else { rand::random() };
                }
                text.truncate(rand::random_range(0..text.len() * 2));
                let _: Result<LogLine, String> = read(&text);
            }
        }
    }
}
