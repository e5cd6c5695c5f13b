//! All mistakes of a file at once.

use super::FIELDS;
use crate::config::place::work;
use crate::config::{ConfigError, RuleFile};

fn lines(mistakes: &[ConfigError]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

const MANY: &str = r#"
[[rule]]
name = "a"
quota = "5/x"
by = "a b"
algorithm = "token"
buckets = 3
when = { host = "y" }
qouta = 5

[[rule]]
name = "b"
quota = "5/s"
by = "ip"
cost = 6
unit = ""
max-wait = "5s"

[[rule]]
name = "a"
block = { after = "x" }

[[rule]]
tiers = { by = 5, quotas = {} }

[other]
"#;

#[test]
fn each_rule_and_each_field_is_checked_by_itself() {
    let key = "ip, bearer, basic-user, header:NAME, cookie:NAME, path, method, global, joined with + or |, or a name of \
               the registry";
    let expected = [
        r#"line 4, rule "a", quota: "x" is not a time such as 10s, 500ms, 5min, h or d"#,
        &format!(r#"line 5, rule "a", by: "a b" is not a key: use {key}"#),
        r#"line 6, rule "a", algorithm: unknown variant `token`, expected one of `gcra`, `leaky-bucket`, `fixed-window`, `fixed-window-aligned`, `sliding-window`, `sliding-buckets`, `sliding-log`"#,
        r#"line 8, rule "a", when.host: unknown field `host`, expected one of `path`, `method`, `header`"#,
        &format!(r#"line 9, rule "a", qouta: unknown field `qouta`, expected one of {FIELDS}"#),
        r#"line 15, rule "b", cost: 6: no request would pass: at most 5"#,
        r#"line 16, rule "b", unit: "": a policy's unit must be 1 to 128 characters of printable ASCII"#,
        r#"line 17, rule "b", max-wait: "5s": only leaky-bucket and in-flight take it, and the algorithm is gcra"#,
        r#"line 19, rule "a": missing field `by`: what divides the quota among callers, such as by = "ip""#,
        r#"line 20, rule "a", name: "a": two rules have this name"#,
        r#"line 21, rule "a", block.after: invalid type: string "x", expected a whole number from 0 to 4294967295"#,
        "line 23: missing field `name`: such as name = \"api\"",
        "line 23: missing field `by`: what divides the quota among callers, such as by = \"ip\"",
        "line 24, tiers.by: invalid type: integer `5`, expected a string",
        "line 26, other: unknown field `other`, expected `$schema` or `rule`",
    ];
    let mistakes = lines(&RuleFile::mistakes_in_toml(MANY));
    for line in expected {
        assert!(mistakes.iter().any(|mistake| mistake == line), "{line}\n{mistakes:#?}");
    }
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
    let value: serde_json::Value = toml::from_str(MANY).unwrap();
    let json = RuleFile::mistakes_in_json(&value.to_string());
    assert_eq!(json.len(), expected.len(), "{:#?}", lines(&json));
}

#[test]
fn a_field_is_no_mistake_for_want_of_one_that_is() {
    for (fields, mistake) in [
        ("quota = 5", "line 4, rule \"a\", quota: invalid type"),
        ("quota = \"5/s\"\nalgorithm = \"bucket\"\nbuckets = 3", "line 5, rule \"a\", algorithm: unknown"),
        (
            "quota = \"5/s\"\ncost = 2\nreserve = \"x\"\nreserve-at-most = \"1/2\"",
            "line 6, rule \"a\", reserve: ",
        ),
        ("quota = \"5/s\"\nblock = { after = 3, for = 5 }", "line 5, rule \"a\", block.for: invalid type"),
    ] {
        let text = format!("[[rule]]\nname = \"a\"\nby = \"ip\"\n{fields}\n");
        let mistakes = lines(&RuleFile::mistakes_in_toml(&text));
        assert!(mistakes[0].starts_with(mistake) && mistakes.len() == 1, "{mistakes:#?}");
    }
}

#[test]
fn a_text_of_another_form_is_one_mistake() {
    for text in ["", "x", "rule = 5", "rule = []", "rule = [5]", "\u{0}", "[[rule]"] {
        let first = RuleFile::from_toml(text).unwrap_err();
        assert_eq!(RuleFile::mistakes_in_toml(text), [first], "{text:?}");
    }
    for text in ["", "[]", "{", "{\"rule\":{}}", "{\"rule\":[{\"name\":1,\"name\":\"a\"}"] {
        let first = RuleFile::from_json(text).unwrap_err();
        assert_eq!(RuleFile::mistakes_in_json(text), [first], "{text:?}");
    }
}

#[test]
fn a_field_that_is_given_twice_in_json_is_listed_with_the_others() {
    let text = "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"by\":\"x y\",\n\"quota\":\"5/x\"}]}";
    let mistakes = lines(&RuleFile::mistakes_in_json(text));
    assert!(mistakes.contains(&"line 4, rule \"a\": duplicate field `by`".to_owned()), "{mistakes:#?}");
    assert!(mistakes.iter().any(|mistake| mistake.contains("\"x\" is not a time")), "{mistakes:#?}");
}

#[test]
fn at_most_a_thousand_mistakes_are_listed() {
    let fields: String = (0..5_000).map(|n| format!("field-{n} = 1\n")).collect();
    assert_eq!(RuleFile::mistakes_in_toml(&format!("[[rule]]\n{fields}")).len(), 1_000);
    assert_eq!(RuleFile::mistakes_in_toml(&"[[rule]]\n".repeat(5_000)).len(), 1_000);
}

/// A place that is searched in the whole text makes it quadratic: 100 mistakes in 5,000 rules took
/// 7.6 s.
#[test]
fn a_thousand_mistakes_are_found_in_work_that_grows_with_the_text() {
    let rule = |n: usize| {
        let quota = if n.is_multiple_of(5) { "5/x" } else { "5/s" };
        format!("[[rule]]\nname = \"rule-{n}\"\nquota = \"{quota}\"\nby = \"ip\"\n\n")
    };
    let toml: String = (0..5_000).map(rule).collect();
    let json = toml::from_str::<serde_json::Value>(&toml).unwrap().to_string();
    for (text, mistakes) in [
        (&toml, RuleFile::mistakes_in_toml as fn(&str) -> Vec<ConfigError>),
        (&json, RuleFile::mistakes_in_json),
    ] {
        work::parsed();
        assert_eq!(mistakes(text).len(), 1_000);
        let parsed = work::parsed();
        assert!(parsed <= 5 * text.len(), "{parsed} bytes of {}", text.len());
    }
    assert_eq!(RuleFile::mistakes_in_toml(&toml)[999].line(), Some(5 * 4_995 + 3));
}
