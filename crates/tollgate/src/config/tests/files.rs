//! Random files, whole and broken.

use serde_json::{Value, json};

use crate::config::{ConfigError, Registry, RuleConfig, RuleFile};

/// A generator of random numbers (splitmix64), so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % end as u64).unwrap()
    }

    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }
}

/// Each field with values of all its forms.
pub(in crate::config) fn values() -> Vec<(&'static str, Vec<Value>)> {
    vec![
        (
            "quota",
            vec![
                json!("100/min"),
                json!("5/10s burst 20"),
                json!("1/1500001us"),
                json!("99/d"),
                json!("99/week"),
            ],
        ),
        #[cfg(feature = "calendar")]
        ("zone", vec![json!("UTC"), json!("America/New_York")]),
        #[cfg(feature = "calendar")]
        ("anchor", vec![json!(1), json!(7)]),
        ("in-flight", vec![json!(1), json!(1_000)]),
        (
            "by",
            vec![
                json!("ip"),
                json!("global"),
                json!("header:x-key | ip"),
                json!("user + path + method | cookie:s + bearer | basic-user"),
            ],
        ),
        (
            "algorithm",
            [
                "gcra",
                "leaky-bucket",
                "fixed-window",
                "fixed-window-aligned",
                "sliding-window",
                "sliding-buckets",
                "sliding-log",
            ]
            .map(Value::from)
            .to_vec(),
        ),
        ("buckets", vec![json!(1), json!(60)]),
        ("max-limit", vec![json!(100), json!(4_294_967_295_u32)]),
        ("max-wait", vec![json!("5s"), json!("0s")]),
        ("ttl", vec![json!("3s")]),
        ("held-at-most", vec![json!("10min")]),
        (
            "when",
            vec![
                json!({}),
                json!({ "path": "/api/*" }),
                json!({ "path": ["/a", "/b/*", "*"], "method": "GET" }),
                json!({ "path": ["/a", "/b/*"], "method": "GET" }),
                json!({ "method": ["GET", "POST"], "header": "x-beta" }),
            ],
        ),
        ("exempt", vec![json!("cors-preflight"), json!(["10.0.0.0/8", "::1", "health", "cors-preflight"])]),
        ("missing-key", vec![json!("refuse"), json!("skip"), json!("one-key")]),
        ("cost", vec![json!(0), json!(1), json!(5), json!("kib")]),
        ("reserve", vec![json!("tokens")]),
        ("reserve-at-most", vec![json!("1/2")]),
        ("count-if", vec![json!("failed")]),
        ("cost-by", vec![json!("used")]),
        ("quota-by", vec![json!("claims")]),
        (
            "tiers",
            vec![
                json!({ "by": "plan", "quotas": { "pro": "600/min burst 700", "a \"b\".c": "5/s" } }),
                json!({ "by": "plan", "quotas": { "pro": "500/week" } }),
                json!({ "by": "plan", "quotas": { "pro": 50 } }),
            ],
        ),
        ("leaving", vec![json!({ "by": "class", "units": { "batch": 3, "none": 0 } })]),
        ("block", vec![json!({ "after": 20, "for": "15m" })]),
        ("unit", vec![json!("tokens"), json!("content-bytes")]),
        ("track-usage", vec![json!(true), json!(false)]),
        ("without-fields", vec![json!(true)]),
        ("mode", vec![json!("enforce"), json!("shadow")]),
    ]
}

/// A rule with a few random fields that fit together.
fn random_rule(random: &mut Random, at: usize) -> (Value, RuleConfig) {
    loop {
        let name = random.of(&["api", "a \"b\" \\ = # [c]", "x"]);
        let mut rule = json!({ "name": format!("{name} {at}") });
        for (field, values) in values() {
            let chance = if matches!(field, "quota" | "by") { 9 } else { 2 };
            if random.below(10) < chance {
                rule[field] = random.of(&values);
            }
        }
        if let Ok(config) = serde_json::from_value(rule.clone()) {
            return (rule, config);
        }
    }
}

fn random_file(random: &mut Random) -> (Value, Vec<RuleConfig>) {
    let count = 1 + random.below(6);
    let (rules, configs): (Vec<Value>, _) = (0..count).map(|at| random_rule(random, at)).unzip();
    (json!({ "rule": rules }), configs)
}

#[test]
fn random_files_survive_both_formats() {
    let mut random = Random(1);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let (value, rules) = random_file(&mut random);
        let file = RuleFile::from_json(&value.to_string()).unwrap();
        assert_eq!(file.rules(), rules);
        for (written, read) in [
            (file.to_toml(), RuleFile::from_toml as fn(&str) -> Result<RuleFile, ConfigError>),
            (file.to_json(), RuleFile::from_json),
        ] {
            let again = read(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
            assert_eq!(again, file, "{written}");
            let policies = |file: &RuleFile| file.rules().iter().map(RuleConfig::policy).collect();
            let [before, after]: [Vec<_>; 2] = [&file, &again].map(policies);
            assert_eq!(before, after, "{written}");
        }
        let fields =
            value["rule"].as_array().unwrap().iter().flat_map(|rule| rule.as_object().unwrap().keys());
        seen.extend(fields.cloned());
    }
    assert_eq!(seen.len(), 1 + values().len(), "each field is tried: {seen:?}");
}

/// Changes a text in one of several ways.
fn break_text(random: &mut Random, text: &str) -> String {
    let mut signs: Vec<char> = text.chars().collect();
    let at = random.below(signs.len());
    let junk =
        ['"', '\'', '{', '}', '[', ']', '=', ',', ':', '\n', '\\', '/', '-', '0', '9', 'e', '\u{0}', 'é'];
    match random.below(6) {
        0 => drop(signs.remove(at)),
        1 => signs.insert(at, random.of(&junk)),
        2 => signs[at] = random.of(&junk),
        3 => signs.truncate(at),
        4 => {
            let end = (at + random.below(40)).min(signs.len());
            let part = signs[at..end].to_vec();
            let to = random.below(signs.len());
            signs.splice(to..to, part);
        }
        _ => {
            let end = (at + random.below(40)).min(signs.len());
            signs.drain(at..end);
        }
    }
    signs.into_iter().collect()
}

#[test]
fn broken_files_are_valid_or_have_an_error_with_a_line() {
    let mut random = Random(2);
    let (mut refused, mut fields) = (0, std::collections::BTreeSet::new());
    let rounds = if std::env::var_os("TOLLGATE_LONG").is_some() { 10_000 } else { 1_000 };
    for round in 0..rounds {
        let file = RuleFile::from_json(&random_file(&mut random).0.to_string()).unwrap();
        let is_toml = round % 2 == 0;
        let mut text = if is_toml { file.to_toml() } else { file.to_json() };
        for _ in 0..=random.below(3) {
            text = if text.is_empty() { text } else { break_text(&mut random, &text) };
        }
        let read = if is_toml { RuleFile::from_toml(&text) } else { RuleFile::from_json(&text) };
        match read {
            Ok(file) => {
                assert_eq!(RuleFile::from_toml(&file.to_toml()).as_ref(), Ok(&file), "{text}");
                if let Err(error) = Registry::new().rules(&file) {
                    assert_error(&error, &text);
                }
            }
            Err(error) => {
                refused += 1;
                fields.extend(error.field().map(str::to_owned));
                assert_error(&error, &text);
                let all = if is_toml {
                    RuleFile::mistakes_in_toml(&text)
                } else {
                    RuleFile::mistakes_in_json(&text)
                };
                assert!(all.contains(&error), "{text}");
                all.iter().for_each(|error| assert_error(error, &text));
            }
        }
    }
    assert!((rounds / 2..rounds).contains(&refused), "{refused} are refused");
    assert!(fields.len() > 50, "{fields:?}");
}

fn assert_error(error: &ConfigError, text: &str) {
    let lines = text.lines().count() + 1;
    assert!(error.line().is_some_and(|line| (1..=lines).contains(&line)), "{error:?}\n{text}");
    assert!(error.to_string().lines().count() == 1, "{error:?}\n{text}");
}

#[test]
fn a_schema_can_be_named_for_editors() {
    let text = r#"{ "$schema": "rules.schema.json", "rule": [{ "name": "a", "quota": "1/s", "by": "ip" }] }"#;
    let file = RuleFile::from_json(text).unwrap();
    assert!(file.to_json().contains("rules.schema.json"));
    assert_eq!(RuleFile::from_toml(&file.to_toml()), Ok(file));
}
