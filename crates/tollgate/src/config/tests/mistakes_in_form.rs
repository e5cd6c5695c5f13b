//! Mistakes in the form of a file, in TOML and in JSON, and the whole message.

use super::{FIELDS, of_json, of_toml};

#[test]
fn a_mistake_in_a_toml_file_is_named_with_its_line() {
    for (text, message) in [
        (
            "",
            "line 1: missing field `rule`: each rule begins with [[rule]] in TOML, and is in the list \"rule\" in JSON",
        ),
        ("rule = 5", "line 1, rule: invalid type: integer, expected a list: [[rule]] in TOML"),
        ("rule = []", "line 1, rule: no rules: nothing would be limited; a rule has name, quota and by"),
        ("rule = [5]", "line 1: invalid type: integer, expected a table with name, quota, by and others"),
        (
            r#"[[rule]]
name="a""#,
            r#"line 1, rule "a": missing field `by`: what divides the quota among callers, such as by = "ip""#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip""#,
            r#"line 1, rule "a", quota: missing: write quota = "100/min", or in-flight = 20"#,
        ),
        (
            r#"[[rule]]
name="a"
by="user|ip"
quota="5/s""#,
            r#"line 3, rule "a", by: "user" is not a key: use ip, bearer, basic-user, header:NAME, cookie:NAME, path, method, global, joined with + or |, or a name of the registry (which has none)"#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip+"
quota="5/s burst 3"
algorithm="fixed-window""#,
            r#"line 3, rule "a", by: "" is not a key: use ip, bearer, basic-user, header:NAME, cookie:NAME, path, method, global, joined with + or |, or a name of the registry"#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip"
quota="5/s burst 3"
algorithm="fixed-window""#,
            r#"line 4, rule "a", quota: "5/s burst 3": a burst has no meaning for a window algorithm: choose gcra, or remove the burst"#,
        ),
        (
            r#"[[rule]]
name=""
by="ip"
quota="5/s""#,
            r#"line 2, rule "", name: "": a policy's name must be 1 to 128 characters of printable ASCII"#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip"
in-flight=0"#,
            r#"line 4, rule "a", in-flight: 0: at least 1 request must be allowed"#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip"
in-flight=9999999"#,
            r#"line 4, rule "a", in-flight: 9999999: in-flight takes a limit of at most 1000000"#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip"
in-flight=9
cost=2"#,
            r#"line 5, rule "a", cost: 2: no request would pass: at most 1"#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip"
in-flight=9
quota="4/s""#,
            r#"line 4, rule "a", in-flight: 9: a rule has a quota or requests in flight: make two rules"#,
        ),
        (
            r#"[[rule]]
name="a"
by="ip"
quota="400000/s"
algorithm="sliding-log""#,
            r#"line 4, rule "a", quota: "400000/s": sliding-log takes limits up to 100000: max-limit sets another"#,
        ),
    ] {
        assert_eq!(of_toml(text), message.replace("FIELDS", FIELDS), "{text}");
    }
}

#[test]
fn a_mistake_in_a_json_file_is_named_with_its_line() {
    for (text, message) in [
        ("", r#"line 1: not JSON: EOF while parsing a value"#),
        ("{", r#"line 1: not JSON: EOF while parsing an object"#),
        ("[]", "line 1: invalid type: sequence, expected a table with the list rule"),
        (r#"[{"name":"a"}]"#, "line 1: invalid type: sequence, expected a table with the list rule"),
        (
            r#"{"rule":[
["a","5/s",null,null,null,"ip"]]}"#,
            "line 2: invalid type: sequence, expected a table with name, quota, by and others",
        ),
        (
            r#"{"rule":[
{"name":"a","by":"ip","quota":"5/s",
"cost":null}]}"#,
            r#"line 3, rule "a", cost: invalid type: null, expected a whole number from 0 to 1099511627776, or a string such as "name""#,
        ),
        (
            r#"{"rule":[
{"name":"a","by":"ip","quota":"5/s",
"when":{"path":null}}]}"#,
            r#"line 3, rule "a", when.path: invalid type: null, expected a string such as "/api/*", or a list of them"#,
        ),
        (
            r#"{"$schema":null,"rule":[{"name":"a","by":"ip","quota":"5/s"}]}"#,
            "line 1, $schema: invalid type: null, expected a string",
        ),
        (
            "{}",
            "line 1: missing field `rule`: each rule begins with [[rule]] in TOML, and is in the list \"rule\" in JSON",
        ),
        (r#"{"rule":[]} x"#, r#"line 1: not JSON: trailing characters"#),
        (
            r#"{"rule":[
{"name":"a",
"by":"ip",
"quota":5}]}"#,
            r#"line 4, rule "a", quota: invalid type: integer `5`, expected a string such as "100/min burst 20""#,
        ),
        (
            r#"{"rule":[
{"name":"a",
"by":"ip",
"quota":"5/x"}]}"#,
            r#"line 4, rule "a", quota: "x" is not a time such as 10s, 500ms, 5min, h or d"#,
        ),
        (
            r#"{"rule":[
{"name":"a",
"by":"ip",
"by":"ip",
"quota":"5/s"}]}"#,
            r#"line 4, rule "a": duplicate field `by`"#,
        ),
        (
            r#"{"rule":[
{"name":"a",
"by":"ip",
"bye":"ip",
"quota":"5/s"}]}"#,
            r#"line 4, rule "a", bye: unknown field `bye`, expected one of FIELDS"#,
        ),
        (
            r#"{"rule":[
{"name":"a",
"by":"ip",
"quota":"5/s",
"tiers":{"by":"x",
"quotas":{"a":"1/s",
"a":"2/s"}}}]}"#,
            r#"line 7, rule "a", tiers.quotas: duplicate field `a`"#,
        ),
        (
            r#"{"rule":[
{"name":"a",
"by":"me",
"quota":"5/s"}]}"#,
            r#"line 3, rule "a", by: "me" is not a key: use ip, bearer, basic-user, header:NAME, cookie:NAME, path, method, global, joined with + or |, or a name of the registry (which has none)"#,
        ),
        (
            r#"{"rule":[
{"name":"a",
"by":"ip",
"cost":18446744073709551615,"quota":"5/s"}]}"#,
            r#"line 4, rule "a", cost: invalid value: integer `18446744073709551615`, expected a whole number from 0 to 1099511627776, or a string such as "name""#,
        ),
        (
            r#"{"rule":[
{"name":"a",
"by":"ip",
"quota":"5/s"},
{"name":"a",
"by":"ip",
"quota":"5/s"}]}"#,
            r#"line 5, rule "a", name: "a": two rules have this name"#,
        ),
    ] {
        assert_eq!(of_json(text), message.replace("FIELDS", FIELDS), "{text}");
    }
}
