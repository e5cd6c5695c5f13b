//! Mistakes in a rule, and the whole message.

use super::{FIELDS, of_toml};
use crate::config::{Registry, RuleConfig, RuleFile};

/// A correct rule, to which the mistakes are added.
const RULE: &str = "[[rule]]\nname = \"api\"\nby = \"ip\"\nquota = \"100/min\"\n";

#[test]
fn a_mistake_in_a_rule_is_named_with_line_field_and_value() {
    for (text, message) in [
        ("qouta = 5", r#"line 5, rule "api", qouta: unknown field `qouta`, expected one of FIELDS"#),
        (r#"name = "x""#, r#"line 5: not TOML: duplicate key"#),
        (
            "cost = -1",
            r#"line 5, rule "api", cost: invalid value: integer `-1`, expected a whole number from 0 to 1099511627776, or a string such as "name""#,
        ),
        ("cost = 500", r#"line 5, rule "api", cost: 500: no request would pass: at most 100"#),
        (
            "cost = 1.5",
            r#"line 5, rule "api", cost: invalid type: floating point `1.5`, expected a whole number from 0 to 1099511627776, or a string such as "name""#,
        ),
        (
            r#"cost = "5""#,
            r#"line 5, rule "api", cost: "5": a number has no quotes, and the name of a cost has letters"#,
        ),
        (r#"cost = "kib""#, r#"line 5, rule "api", cost: "kib" is not a cost: the registry has none"#),
        ("burst = 3", r#"line 5, rule "api", burst: unknown field `burst`, expected one of FIELDS"#),
        (
            r#"algorithm = "token""#,
            r#"line 5, rule "api", algorithm: unknown variant `token`, expected one of `gcra`, `leaky-bucket`, `fixed-window`, `fixed-window-aligned`, `sliding-window`, `sliding-buckets`, `sliding-log`"#,
        ),
        (
            r#"algorithm = "sliding-window"
buckets = 3"#,
            r#"line 6, rule "api", buckets: 3: only sliding-buckets takes it, and the algorithm is sliding-window"#,
        ),
        (
            r#"algorithm = "sliding-buckets"
buckets = 0"#,
            r#"line 6, rule "api", buckets: 0: sliding-buckets takes 1 to 1000 buckets"#,
        ),
        (
            r#"max-wait = "5s""#,
            r#"line 5, rule "api", max-wait: "5s": only leaky-bucket and in-flight take it, and the algorithm is gcra"#,
        ),
        (
            "max-wait = 5",
            r#"line 5, rule "api", max-wait: invalid type: integer `5`, expected a string such as "5s""#,
        ),
        (
            r#"exempt = ["fe80::/200"]"#,
            r#"line 5, rule "api", exempt.0: "fe80::/200" is not a network, an address, cors-preflight or the name of an exemption: a to z, 0 to 9, - and _"#,
        ),
        (
            r#"exempt = ["10", "Health"]"#,
            r#"line 5, rule "api", exempt.0: "10" is not a network, an address, cors-preflight or the name of an exemption: a to z, 0 to 9, - and _"#,
        ),
        (
            r#"cost = 101
tiers = { by = "plan", quotas = { free = "40/min" } }
leaving = { by = "class", units = { batch = 1 } }"#,
            r#"line 5, rule "api", cost: 101: no request would pass: at most 100"#,
        ),
        (
            r#"when = ["/api/*", "GET"]"#,
            r#"line 5, rule "api", when: invalid type: sequence, expected a table such as { path = "/api/*" }"#,
        ),
        (
            r#"block = [20, "15m"]"#,
            r#"line 5, rule "api", block: invalid type: sequence, expected a table such as { after = 20, for = "15m" }"#,
        ),
        (
            r#"tiers = ["plan", { pro = "5/s" }]"#,
            r#"line 5, rule "api", tiers: invalid type: sequence, expected a table such as { by = "plan", quotas = { pro = "600/min" } }"#,
        ),
        (
            r#"leaving = ["class", { batch = 2 }]"#,
            r#"line 5, rule "api", leaving: invalid type: sequence, expected a table such as { by = "class", units = { batch = 200 } }"#,
        ),
        (r#"ttl = "5s""#, r#"line 5, rule "api", ttl: "5s": only a rule with in-flight takes it"#),
        (
            "in-flight = 3",
            r#"line 5, rule "api", in-flight: 3: a rule has a quota or requests in flight: make two rules"#,
        ),
        (
            r#"when = { path = "api" }"#,
            r#"line 5, rule "api", when.path: "api" is not a path such as /api/*: it begins with /, has * only at its end, and no query"#,
        ),
        (
            r#"when = { method = "Get" }"#,
            r#"line 5, rule "api", when.method: "Get" is not a method such as GET or POST, in capitals"#,
        ),
        (
            "when = { method = [] }",
            r#"line 5, rule "api", when.method: invalid length 0, expected a string such as "GET", or a list of them"#,
        ),
        (
            r#"when = { method = ["GET", "x y"] }"#,
            r#"line 5, rule "api", when.method.1: "x y" is not a method such as GET or POST, in capitals"#,
        ),
        (
            r#"when = { header = "x y" }"#,
            r#"line 5, rule "api", when.header: "x y" is not the name of a header"#,
        ),
        (
            r#"when = { host = "x" }"#,
            r#"line 5, rule "api", when.host: unknown field `host`, expected one of `path`, `method`, `header`"#,
        ),
        (
            "when = 5",
            r#"line 5, rule "api", when: invalid type: integer `5`, expected a table such as { path = "/api/*" }"#,
        ),
        (
            r#"tiers = { by = "plan", quotas = { pro = 5 } }"#,
            r#"line 5, rule "api", tiers: {"by":"plan","quotas":{"pro":5}}: tier "pro" needs a quota such as "100/min""#,
        ),
        (
            r#"tiers = { by = "plan", quotas = { pro = "5" } }"#,
            r#"line 5, rule "api", tiers.quotas.pro: "5" is not a quota: expected LIMIT/WINDOW, such as 100/min or 5/10s burst 20"#,
        ),
        (
            r#"tiers = { by = "plan", quotas = { } }"#,
            r#"line 5, rule "api", tiers: {"by":"plan","quotas":{}}: no tiers: all callers would have the rule's own quota"#,
        ),
        (
            r#"tiers = { by = "plan", quotas = { pro = "5/s" } }"#,
            r#"line 5, rule "api", tiers: "plan" is not a class: the registry has none"#,
        ),
        (
            r#"[rule.tiers]
by = "plan"
quotas = { pro = "5/s" }"#,
            r#"line 5, rule "api", tiers: "plan" is not a class: the registry has none"#,
        ),
        (
            r#"leaving = { by = "plan", units = { batch = 100 } }"#,
            r#"line 5, rule "api", leaving: {"by":"plan","units":{"batch":100}}: class "batch": a class must leave less than the capacity to others"#,
        ),
        (
            "block = { after = 20 }",
            r#"line 5, rule "api", block: missing field `for`: how long a block lasts, such as for = "15m""#,
        ),
        (
            r#"block = { after = 0, for = "5s" }"#,
            r#"line 5, rule "api", block: {"after":0,"for":"5s"}: a block takes at least 1 denial, and lasts 1 ms to 366 days"#,
        ),
        (
            r#"block = { after = 5, for = "0s" }"#,
            r#"line 5, rule "api", block: {"after":5,"for":"0s"}: a block takes at least 1 denial, and lasts 1 ms to 366 days"#,
        ),
        (
            r#"missing-key = "ignore""#,
            r#"line 5, rule "api", missing-key: unknown variant `ignore`, expected one of `refuse`, `skip`, `one-key`"#,
        ),
        (
            r#"exempt = ["10.0.0.0/33"]"#,
            r#"line 5, rule "api", exempt.0: "10.0.0.0/33" is not a network, an address, cors-preflight or the name of an exemption: a to z, 0 to 9, - and _"#,
        ),
        (
            "exempt = 5",
            r#"line 5, rule "api", exempt: invalid type: integer `5`, expected a string such as "10.0.0.0/8", or a list of them"#,
        ),
        (
            r#"count-if = "failed""#,
            r#"line 5, rule "api", count-if: "failed" is not a condition: the registry has none"#,
        ),
        (
            r#"cost-by = "failed""#,
            r#"line 5, rule "api", cost-by: "failed" is not a response cost: the registry has none"#,
        ),
        (
            r#"reserve = "tokens""#,
            r#"line 5, rule "api", reserve: "tokens" is not a cost: the registry has none"#,
        ),
        (
            r#"reserve-at-most = "1/2""#,
            r#"line 5, rule "api", reserve-at-most: "1/2": it bounds the estimate of reserve, which is missing: name a cost of the registry there, or remove this"#,
        ),
        (
            r#"reserve-at-most = "3/2""#,
            r#"line 5, rule "api", reserve-at-most: "3/2" is not a share: a share must not be more than the whole"#,
        ),
        (
            r#"algorithm = "leaky-bucket"
count-if = "failed""#,
            r#"line 6, rule "api", count-if: "failed": the charges of leaky-bucket, of in-flight, or of a bucket that takes 71 years to fill cannot be corrected: remove it, or choose another algorithm"#,
        ),
        (
            r#"unit = """#,
            r#"line 5, rule "api", unit: "": a policy's unit must be 1 to 128 characters of printable ASCII"#,
        ),
        (
            "track-usage = 1",
            r#"line 5, rule "api", track-usage: invalid type: integer `1`, expected a boolean"#,
        ),
        ("x", r#"line 5: not TOML: key with no value, expected `=`"#),
        ("y = ", r#"line 5: not TOML: string values must be quoted, expected literal string"#),
        ("[rule", r#"line 5: not TOML: unclosed table, expected `]`"#),
        (
            r#"


"abc"#,
            r#"line 8: not TOML: key with no value, expected `=`"#,
        ),
        ("[other]", "line 5, other: unknown field `other`, expected `$schema` or `rule`"),
    ] {
        assert_eq!(of_toml(&format!("{RULE}{text}\n")), message.replace("FIELDS", FIELDS), "{text}");
    }
}

#[test]
fn two_rules_of_one_name_are_refused() {
    let error = of_toml(&format!("{RULE}{RULE}"));
    assert_eq!(error, r#"line 6, rule "api", name: "api": two rules have this name"#);
}

#[test]
fn a_mistake_in_one_line_is_explained() {
    let form = "expected NAME=LIMIT/WINDOW[,OPTION=VALUE]..., such as api=10/10s, or NAME=N[,OPTION=VALUE]... for N \
                requests in flight";
    for (text, message) in [
        ("", form),
        ("api", form),
        ("api=", form),
        ("api=-1", form),
        ("api=+1", form),
        ("api=1.5", form),
        ("api=99999999999999999999", form),
        ("api=0", r#"rule "api", in-flight: 0: at least 1 request must be allowed"#),
        ("api=1000001", r#"rule "api", in-flight: 1000001: in-flight takes a limit of at most 1000000"#),
        ("api=2,burst=3", r#""burst" is not an option: use key, ttl, max-wait"#),
        ("api=2,ttl=3s,ttl=3s", "ttl is given twice"),
        ("api=2,ttl=0s", r#"rule "api", ttl: "0s": a quota's window must be between 1 ms and 366 days"#),
        ("api=/s", r#""" is not a whole number from 1 to 1099511627776"#),
        ("api=5/10", r#""10" is not a time such as 10s, 500ms, 5min, h or d"#),
        ("api=5/s,", r#""" is not an option: use burst, algorithm, key, max-wait"#),
        ("api=5/s,brust=2", r#""brust" is not an option: use burst, algorithm, key, max-wait"#),
        ("api=5/s,burst", r#""" is not a whole number from 1 to 1099511627776"#),
        ("api=5/s,burst=1,burst=2", "burst is given twice"),
        (
            "api=5/s,algorithm=token",
            "unknown variant `token`, expected one of `gcra`, `leaky-bucket`, `fixed-window`, \
             `fixed-window-aligned`, `sliding-window`, `sliding-buckets`, `sliding-log`",
        ),
        ("api=5/s,key=header:a b", r#""a b" is not the name of a header"#),
        ("=5/s", r#"rule "", name: "": a policy's name must be 1 to 128 characters of printable ASCII"#),
        (
            "api=5/s,burst=2,algorithm=fixed-window",
            r#"rule "api", quota: "5/s burst 2": a burst has no meaning for a window algorithm: choose gcra, or remove the burst"#,
        ),
        (
            "api=5/s,max-wait=5s",
            r#"rule "api", max-wait: "5s": only leaky-bucket and in-flight take it, and the algorithm is gcra"#,
        ),
    ] {
        let rule = text.parse().and_then(|rule: RuleConfig| Registry::of_any_name().rule(&rule));
        assert_eq!(rule.map(drop).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn a_key_of_too_many_parts_is_refused() {
    let error = |joined: usize, sign: &str| {
        let by = vec!["ip"; joined].join(sign);
        of_toml(&format!("[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"{by}\""))
    };
    assert!(error(17, " | ").ends_with("a key of 17 alternatives is too long: use at most 16"));
    assert!(error(17, "+").ends_with("a key of 17 parts is too long: use at most 16"));
    let long = error(100_000, "|");
    assert_eq!(long, "line 4, rule \"a\", by: a text of 299999 bytes is too long: use at most 1024");
}

#[test]
fn fields_that_would_switch_a_rule_off_are_refused() {
    for (fields, error) in [
        ("quota = \"5/s\"\ncost = 0", "cost: 0: nothing would be limited: at least 1"),
        (
            "in-flight = 1\nheld-at-most = \"0s\"",
            "held-at-most: \"0s\": nothing would be limited: at least 1 ms",
        ),
        (
            "quota = \"5/s\"\nheld-at-most = \"5s\"",
            "held-at-most: \"5s\": only a rule with in-flight takes it",
        ),
        (
            "in-flight = 1\nunit = \"tokens\"",
            "unit: \"tokens\": only a rule with a quota takes it, and this one has in-flight",
        ),
        (
            "in-flight = 1\nmode = \"shadow\"",
            "mode: \"shadow\": a rule of requests in flight, or with reserve, count-if or cost-by, cannot be in shadow",
        ),
        (
            "quota = \"5/s\"\nmode = \"dry-run\"",
            "mode: unknown variant `dry-run`, expected `enforce` or `shadow`",
        ),
    ] {
        let error_of = of_toml(&format!("[[rule]]\nname = \"a\"\nby = \"ip\"\n{fields}"));
        assert!(error_of.ends_with(error), "{error_of}");
    }
    let bought = "[[rule]]\nname = \"a\"\nby = \"ip\"\nquota = \"5/s\"\ncost = 50\nquota-by = \"bought\"";
    let bought = RuleFile::from_toml(bought).and_then(|file| Registry::of_any_name().rules(&file));
    assert!(bought.is_ok(), "a quota of a request may be larger");
}

#[test]
fn an_error_quotes_a_long_text_in_part() {
    let long = "x".repeat(1_000_000);
    for fields in [format!("name = \"{long}\""), format!("name = \"a\"\nreserve = \"{long}\"\ncost = 1")] {
        let error = of_toml(&format!("[[rule]]\nby = \"ip\"\nquota = \"5/s\"\n{fields}"));
        assert!(error.len() < 3_000 && error.contains('…'), "{} bytes", error.len());
    }
}

#[test]
#[should_panic(expected = "exemption \"cors-preflight\": choose another name")]
fn an_exemption_cannot_take_the_place_of_the_own_ones() {
    let _ = Registry::new().exempt("cors-preflight", |_: &crate::Head<'_>| true);
}
