//! Quotas per day, week and month.

use super::of_toml;
use crate::calendar::CalendarWindow;
use crate::config::{RuleConfig, RuleFile};

/// A rule without a quota.
const RULE: &str = "[[rule]]\nname = \"api\"\nby = \"ip\"\n";

fn rule(text: &str) -> RuleConfig {
    let text = format!("{RULE}{text}\n");
    let file = RuleFile::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(RuleFile::from_toml(&file.to_toml()).as_ref(), Ok(&file));
    assert_eq!(RuleFile::from_json(&file.to_json()).as_ref(), Ok(&file));
    file.rules()[0].clone()
}

#[test]
fn a_quota_of_the_calendar_is_that_of_code() {
    let new_york = CalendarWindow::month("America/New_York");
    for (text, window) in [
        (
            r#"quota = "10000/month"
zone = "America/New_York""#,
            new_york.clone(),
        ),
        (
            r#"quota = "10000/month"
zone = "America/New_York"
anchor = 31"#,
            new_york.anchor(31),
        ),
        (
            r#"quota = "10000/week"
zone = "UTC"
anchor = 7"#,
            CalendarWindow::week("UTC").anchor(7),
        ),
        (
            r#"quota = "10000/day"
zone = "Asia/Kolkata""#,
            CalendarWindow::day("Asia/Kolkata"),
        ),
    ] {
        let rule = rule(text);
        assert_eq!(rule.policy(), Ok(window.policy("api", 10_000)), "{text}");
    }
}

#[test]
fn a_day_with_d_is_24_hours_as_ever() {
    let rule = rule(r#"quota = "100/d""#);
    assert_eq!(rule.policy(), Ok(crate::Policy::new("api", crate::Quota::per_day(100))));
}

#[test]
fn each_mistake_is_named_with_line_field_and_value() {
    for (text, message) in [
        (
            r#"quota = "100/month""#,
            r#"line 4, rule "api", quota: "100/month": a quota per day, week or month needs zone, such as zone = "Europe/Berlin""#,
        ),
        (
            r#"quota = "100/d"
zone = "UTC""#,
            r#"line 5, rule "api", zone: "UTC": only a quota per day, week or month takes it, such as 100/day"#,
        ),
        (
            r#"quota = "100/30d"
anchor = 3"#,
            r#"line 5, rule "api", anchor: 3: only a quota per day, week or month takes it, such as 100/day"#,
        ),
        (
            r#"in-flight = 3
zone = "UTC""#,
            r#"line 5, rule "api", zone: "UTC": only a rule with a quota takes it, and this one has in-flight"#,
        ),
        (
            r#"quota = "100/day"
zone = "Berlin""#,
            r#"line 5, rule "api", zone: "Berlin" is not a time zone of the IANA database, such as UTC or Europe/Berlin"#,
        ),
        (
            r#"quota = "100/day"
zone = "UTC"
anchor = 3"#,
            r#"line 6, rule "api", anchor: 3: only a week or a month has a first day"#,
        ),
        (
            r#"quota = "100/month"
zone = "UTC"
anchor = 32"#,
            r#"line 6, rule "api", anchor: 32: day 32 is not one of a month: 1 to 31"#,
        ),
        (
            r#"quota = "100/month"
zone = "UTC"
algorithm = "gcra""#,
            r#"line 6, rule "api", algorithm: "gcra": a quota per day, week or month has an algorithm of its own: remove it"#,
        ),
        (
            r#"quota = "100/month burst 5"
zone = "UTC""#,
            r#"line 4, rule "api", quota: "100/month burst 5": a burst has no meaning for a window algorithm: choose gcra, or remove the burst"#,
        ),
        (
            r#"quota = "0/month"
zone = "UTC""#,
            r#"line 4, rule "api", quota: "0" is not a whole number from 1 to 1099511627776"#,
        ),
        (
            r#"quota = "5/2month"
zone = "UTC""#,
            r#"line 4, rule "api", quota: "2month" is not a time such as 10s, 500ms, 5min, h or d"#,
        ),
        (
            r#"quota = "100/month"
zone = "UTC"
tiers = { by = "plan", quotas = { pro = "5000/d" } }"#,
            r#"line 6, rule "api", tiers: {"by":"plan","quotas":{"pro":"5000/d"}}: tier "pro" needs a quota such as "100/month""#,
        ),
        (
            r#"quota = "100/d"
tiers = { by = "plan", quotas = { pro = "5000/month" } }"#,
            r#"line 5, rule "api", tiers: {"by":"plan","quotas":{"pro":"5000/month"}}: tier "pro" needs a quota such as "100/min""#,
        ),
    ] {
        assert_eq!(of_toml(&format!("{RULE}{text}\n")), message, "{text}");
    }
}
