//! Answers of real servers, as their documentation shows them.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tollgate_core::Timestamp;

use super::fields::pause;

/// The pause in seconds that an answer asks for: its status, and its fields line by line.
fn asked(answer: &str) -> Option<u64> {
    let (status, fields) = answer.trim().split_once('\n').expect("a status and fields");
    let field = |line: &str| {
        let (name, value) = line.trim().split_once(": ").expect("a field");
        (name.parse::<HeaderName>().expect("a name"), value.parse::<HeaderValue>().expect("a value"))
    };
    let headers: HeaderMap = fields.lines().map(field).collect();
    let status = status.parse::<StatusCode>().expect("a status");
    // 2026-01-01 00:00:00.
    pause(status, &headers, Timestamp::from_micros(1_767_225_600_000_000)).map(|pause| pause.as_secs())
}

/// docs.github.com, "Rate limits for the REST API".
#[test]
fn github_sends_the_time_of_the_reset_with_a_403() {
    let exceeded = "403
        Date: Tue, 20 Aug 2013 14:50:41 GMT
        X-RateLimit-Limit: 60
        X-RateLimit-Remaining: 0
        X-RateLimit-Used: 60
        X-RateLimit-Resource: core
        X-RateLimit-Reset: 1377013266";
    assert_eq!(asked(exceeded), Some(3_025));
    let secondary = "403
        Retry-After: 60
        X-RateLimit-Limit: 5000
        X-RateLimit-Remaining: 4987
        X-RateLimit-Reset: 1377013266";
    assert_eq!(asked(secondary), Some(60));
    let forbidden = "403
        X-RateLimit-Limit: 60
        X-RateLimit-Remaining: 56
        X-RateLimit-Reset: 1372700873";
    assert_eq!(asked(forbidden), None);
}

/// docs.gitlab.com, "User and IP rate limits", and the answer in gitlab-org/gitlab#199738.
#[test]
fn gitlab_sends_the_time_of_the_reset() {
    let throttled = "429
        Date: Tue, 05 Jan 2021 10:59:30 GMT
        RateLimit-Limit: 60
        RateLimit-Name: throttle_authenticated_web
        RateLimit-Observed: 67
        RateLimit-Remaining: 0
        RateLimit-Reset: 1609844400
        RateLimit-ResetTime: Tue, 05 Jan 2021 11:00:00 GMT";
    assert_eq!(asked(throttled), Some(30));
    assert_eq!(asked(&format!("{throttled}\nRetry-After: 30")), Some(30));
    let by_another_limit = "429
        Date: Thu, 30 Jan 2020 14:14:16 GMT
        RateLimit-Limit: 600
        RateLimit-Observed: 5
        RateLimit-Remaining: 595
        RateLimit-Reset: 1580393717
        RateLimit-ResetTime: Thu, 30 Jan 2020 14:15:17 GMT";
    assert_eq!(asked(by_another_limit), None);
}

/// shopify.dev, "REST Admin API rate limits".
#[test]
fn shopify_sends_a_fraction() {
    let exceeded = "429
        X-Shopify-Shop-Api-Call-Limit: 40/40
        Retry-After: 2.0";
    assert_eq!(asked(exceeded), Some(2));
}

/// platform.openai.com, "Rate limits in headers".
#[test]
fn openai_sends_resets_for_requests_and_tokens() {
    let limits = "429
        x-ratelimit-limit-requests: 60
        x-ratelimit-limit-tokens: 150000
        x-ratelimit-remaining-requests: 0
        x-ratelimit-remaining-tokens: 149984
        x-ratelimit-reset-requests: 1s
        x-ratelimit-reset-tokens: 6m0s";
    assert_eq!(asked(limits), None);
    assert_eq!(asked(&format!("{limits}\nRetry-After: 20\nretry-after-ms: 19980")), Some(20));
}

/// docs.discord.com, "Rate limits".
#[test]
fn discord_sends_a_time_with_a_fraction() {
    let exceeded = "429
        Retry-After: 65
        X-RateLimit-Limit: 10
        X-RateLimit-Remaining: 0
        X-RateLimit-Reset: 1470173023.123
        X-RateLimit-Reset-After: 64.57
        X-RateLimit-Bucket: abcd1234
        X-RateLimit-Scope: user";
    assert_eq!(asked(exceeded), Some(65));
    let used_up = "200
        Date: Tue, 02 Aug 2016 21:23:42 GMT
        X-RateLimit-Limit: 5
        X-RateLimit-Remaining: 0
        X-RateLimit-Reset: 1470173023.123
        X-RateLimit-Reset-After: 1";
    assert_eq!(asked(used_up), Some(2));
}
