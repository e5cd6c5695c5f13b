//! Files that are no rules, such as a secret that was mounted at the wrong path.

use crate::config::{ConfigError, RuleConfig, RuleFile};

/// All that errors say of a text, read as TOML and as JSON.
fn errors(text: &str) -> String {
    let mut all: Vec<ConfigError> = [RuleFile::from_toml(text), RuleFile::from_json(text)]
        .into_iter()
        .filter_map(Result::err)
        .chain(RuleFile::mistakes_in_toml(text))
        .chain(RuleFile::mistakes_in_json(text))
        .collect();
    assert!(all.len() >= 4, "{text}");
    all.retain(|error| !error.to_string().is_empty());
    all.iter().map(|error| format!("{error} {error:?} {:?} {}\n", error.field(), error.reason())).collect()
}

#[test]
fn errors_of_a_text_that_is_no_rules_do_not_quote_it() {
    for text in [
        "sesame",
        "sesame\nsesame = sesame",
        "PASSWORD=sesame\nTOKEN=sesame",
        "PASSWORD = \"sesame\"\n[sesame]\nsesame = \"sesame\"",
        "password: sesame\n",
        "-----BEGIN sesame-----\nsesame\n",
        "\"sesame\"",
        "[\"sesame\", \"sesame\"]",
        "{\"password\": \"sesame\"}",
        "{\"rule\": \"sesame\"}",
        "{\"rule\": [\"sesame\"]}",
        "{\"rule\": [[\"sesame\"]]}",
        "{\"rule\": {\"sesame\": 1}}",
        "{\"$schema\": 5, \"rule\": \"sesame",
        "rule = \"sesame\"",
        "rule = [\"sesame\", 5]",
        "rule = 1979-05-27T07:32:00Z # sesame",
        "\"a name of twenty characters is shown, sesame\" = 1",
        "[[rule]]\nname = \"a\"\n\"a name of twenty characters is shown, sesame\" = \"sesame\"",
        "{\"rule\": [{\"name\": \"a\", \"password of twenty characters sesame\": \"sesame\"}]}",
    ] {
        let errors = errors(text);
        // A name is shown up to its 20th character, as `sesame` is where it is one.
        let is_name = text.contains("[sesame]") || text.contains("{\"sesame\"");
        assert!(is_name || !errors.contains("sesame"), "{text}\n{errors}");
    }
}

#[test]
fn names_in_errors_are_cut_and_escaped() {
    let junk = "\\r\\u001b[31m\\u202E";
    for text in [
        format!("\"{junk}\" = 1"),
        format!("[[rule]]\nname = \"{junk}\"\n\"{junk}\" = 1"),
        format!("[[rule]]\nname = \"a\"\nmode = \"{junk}\"\nexempt = \"{junk}\"\nby = \"{junk}\""),
        format!("[[rule]]\nname = \"a\"\nby = \"ip\"\nquota = \"5/s\"\nunit = \"{junk}\""),
        format!("{{\"{junk}\": 1}}"),
        format!("{{\"rule\": [{{\"name\": \"{junk}\", \"tiers\": {{\"{junk}\": 1}}}}]}}"),
        format!(
            "{{\"rule\": [{{\"tiers\": {{\"by\": \"x\", \"quotas\": {{\"{junk}\": \"1/s\", \"{junk}\": \"1/s\"}}}}}}]}}"
        ),
    ] {
        let all: String = RuleFile::mistakes_in_toml(&text)
            .iter()
            .chain(&RuleFile::mistakes_in_json(&text))
            .map(|error| format!("{error} {}", error.reason()))
            .collect();
        assert!(!all.contains(['\r', '\u{1b}', '\u{202e}', '\n']), "{text}: {all:?}");
    }
    let one_line = "a=5/s,algorithm=\u{1b}[31m".parse::<RuleConfig>().unwrap_err();
    assert!(!one_line.to_string().contains('\u{1b}'), "{one_line}");
    let long = format!("[[rule]]\nname = \"a\"\n\"{}\" = 1", "é".repeat(10_000));
    let error = RuleFile::from_toml(&long).unwrap_err();
    assert_eq!(error.field(), Some(&*format!("{}…", "é".repeat(20))));
    assert!(error.reason().starts_with(&format!("unknown field `{}…`, expected one of", "é".repeat(20))));
}

#[test]
fn a_text_of_another_format_is_named_as_such() {
    for yaml in
        ["---\nrule:\n", "rule:\n  - name: api\n", "# rules\n\n- name: api\n", "%YAML 1.2\n", "name: api"]
    {
        for error in [RuleFile::from_toml(yaml), RuleFile::from_json(yaml)] {
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with(": this seems to be YAML, and rules are in TOML or JSON"), "{error}");
        }
    }
    let json = RuleFile::from_toml("\n{\"rule\": []}").unwrap_err().to_string();
    assert!(json.ends_with(": this seems to be JSON, whose files end in .json"), "{json}");
    let toml = RuleFile::from_json("# rules\n[[rule]]\nname = \"a\"").unwrap_err().to_string();
    assert!(toml.ends_with(": this seems to be TOML, whose files do not end in .json"), "{toml}");
    for (text, line) in [("a = \"b: c\"\n\"", "line 2: not TOML: "), ("[rule\n", "line 1: not TOML: ")] {
        let error = RuleFile::from_toml(text).unwrap_err().to_string();
        assert!(error.starts_with(line) && !error.contains("seems"), "{error}");
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let toml = "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"ip\"";
    let json = RuleFile::from_toml(toml).unwrap().to_json();
    assert_eq!(RuleFile::from_toml(&format!("\u{feff}{toml}")), RuleFile::from_toml(toml));
    assert_eq!(RuleFile::from_json(&format!("\u{feff}{json}")), RuleFile::from_json(&json));
    let wrong = |text: String| format!("\u{feff}{}", text.replace("5/s", "5/x"));
    let of = |errors: Vec<ConfigError>| errors.iter().map(ConfigError::line).collect::<Vec<_>>();
    assert_eq!(of(RuleFile::mistakes_in_toml(&wrong(toml.to_owned()))), [Some(3)]);
    assert_eq!(of(RuleFile::mistakes_in_json(&wrong(json))), [Some(5)]);
}

#[test]
fn tables_that_are_nested_too_deeply_are_named_with_their_line() {
    let deep = "a.".repeat(200_000);
    for (line, text) in [
        (2, format!("[[rule]]\n{deep}a = 1\nname = \"a\"\n")),
        (3, format!("[[rule]]\nname = \"a\"\n[{deep}a]\n")),
        (
            3,
            format!("[[rule]]\nname = \"\"\"\na.b\"\"\"\nb = {{ {deep}a = 1 }}\n\n")
                .replace("\"\"\"\na", "\"\"\"a"),
        ),
        (1, format!("a = {}", "[".repeat(200_000))),
    ] {
        let error = RuleFile::from_toml(&text).unwrap_err();
        assert_eq!((error.line(), error.to_string().len() < 200), (Some(line), true), "{error}");
    }
    let json = |value: String| format!("{{\"rule\": [\n{{\"name\": \"a\",\n\"quota\": {value}}}]}}");
    let lists = json("[".repeat(100_000) + &"]".repeat(100_000));
    assert_eq!(RuleFile::from_json(&lists).unwrap_err().line(), Some(3));
    assert_eq!(RuleFile::from_json(&json("[".repeat(100_000))).unwrap_err().line(), Some(3));
}
