//! What files of rules say in words, ways around them, and changes.

use tollgate::config::{ConfigError, RuleConfig, RuleFile};
use tollgate::layer::RuleChange;

use super::changes::changes;
use super::names::application_names;
use super::warnings::warnings;
use super::words::in_words;

/// A file of rules that are named by their place, each of these fields.
fn file(rules: &[&str]) -> RuleFile {
    let rule = |(at, fields): (usize, &&str)| format!("[[rule]]\nname = \"{at}\"\n{fields}\n");
    RuleFile::from_toml(&rules.iter().enumerate().map(rule).collect::<String>()).unwrap()
}

/// The rules and the fields of warnings.
fn warned(rules: &[&str]) -> Vec<String> {
    let warnings = warnings(&file(rules));
    let place = |warning: &ConfigError| format!("{} {}", warning.rule().unwrap(), warning.field().unwrap());
    warnings.iter().map(place).collect()
}

#[test]
fn a_key_that_callers_invent_needs_a_rule_for_the_same_requests() {
    let by = |by: &str, when: &str| format!("quota = \"5/s\"\nby = \"{by}\"\nwhen = {{ {when} }}");
    for invented in [
        "header:x",
        "cookie:s",
        "bearer",
        "basic-user",
        "bearer | ip",
        "path | bearer",
        "header:x + ip",
        "user | header:x",
    ] {
        assert_eq!(warned(&[&by(invented, "")]), ["0 by"], "{invented}");
        assert!(warned(&[&by(invented, ""), &by("ip", "")]).is_empty(), "{invented}");
    }
    for trusted in ["ip", "global", "user", "user | ip", "path + method", "ip | bearer"] {
        assert!(warned(&[&by(trusted, "")]).is_empty(), "{trusted}");
    }
    for (when, guards, is_covered) in [
        ("", &["path = \"/*\""][..], false),
        ("path = \"/a\"", &["path = \"/a\""], true),
        ("path = \"/a\"", &["path = \"/*\""], true),
        ("path = \"/a\"", &["path = \"/a\", method = \"PUT\"", "path = \"/a\""], true),
        ("path = \"/a/*\"", &["path = \"/a/b\""], false),
        ("path = \"/a/*\"", &["path = \"/a/*\""], true),
        ("path = \"/a*\"", &["path = \"/a/*\""], false),
        ("path = [\"/a\", \"/b\"]", &["path = \"/a\""], false),
        ("path = [\"/a\", \"/b\"]", &["path = [\"/a\", \"/x*\"]"], false),
        ("path = [\"/a\", \"/b\"]", &["path = [\"/b\", \"/a*\"]"], true),
        ("method = \"POST\"", &["method = \"GET\""], false),
        ("method = \"HEAD\"", &["method = \"GET\""], true),
        ("method = \"GET\"", &["method = \"HEAD\""], false),
        ("method = [\"GET\", \"PUT\"], path = \"/a\"", &["method = [\"PUT\", \"GET\"]"], true),
        ("path = \"/a\"", &["header = \"x\""], false),
    ] {
        let guards: Vec<String> = guards.iter().map(|when| by("ip", when)).collect();
        let rules = [by("bearer", when)].into_iter().chain(guards).collect::<Vec<_>>();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        assert_eq!(!warned(&rules).contains(&"0 by".to_owned()), is_covered, "{rules:#?}");
    }
    for ignores in ["exempt = [\"10.0.0.0/8\", \"0.0.0.0/0\"]", "count-if = \"failed\"", "mode = \"shadow\""]
    {
        let guard = format!("quota = \"5/s\"\nby = \"ip\"\n{ignores}");
        assert_eq!(warned(&[&by("bearer", ""), &guard]), ["0 by"], "{ignores}");
    }
    let slots = "in-flight = 2\nby = \"ip\"";
    assert_eq!(warned(&[&by("bearer", ""), slots]), ["0 by"], "slots do not limit a rate");
}

#[test]
fn headers_and_keys_that_callers_omit_are_ways_around_a_rule() {
    let omitted = "quota = \"5/s\"\nby = \"ip\"\nwhen = { header = \"x-beta\" }";
    assert_eq!(warned(&[omitted]), ["0 when"]);
    let skipped = "quota = \"5/s\"\nby = \"user\"\nmissing-key = \"skip\"";
    assert_eq!(warned(&[omitted, skipped]), ["0 when", "1 missing-key"]);
    assert!(warned(&[omitted, skipped, "quota = \"5/s\"\nby = \"ip\""]).is_empty());
    let warning = warnings(&file(&["quota = \"5/s\"\nby = \"header:x | ip\""])).remove(0);
    assert_eq!(
        warning.to_string(),
        "line 4, rule \"0\", by: \"header:x | ip\": a caller that invents a new value of the header x for each request is \
         not limited: add a rule by ip, unless an outer layer checks it"
    );
}

#[test]
fn changes_name_rules_that_start_again() {
    let changes = |earlier: &[&str], next: &[&str]| changes(&file(earlier), &file(next)).unwrap();
    let of = |quota: &str, more: &str| format!("quota = \"{quota}\"\nby = \"ip\"\n{more}");
    let first = of("5/s", "");
    assert_eq!(changes(&[&first], &[&first]), []);
    for (next, change) in [
        (of("6/s", ""), RuleChange::Changed),
        (of("5/min", ""), RuleChange::StartsAgain),
        (of("5/s", "algorithm = \"fixed-window\""), RuleChange::StartsAgain),
        ("quota = \"6/s\"\nby = \"user | ip\"".to_owned(), RuleChange::StartsAgain),
        (of("5/s", "exempt = \"cors-preflight\""), RuleChange::Otherwise),
    ] {
        assert_eq!(changes(&[&first], &[&next]), [("0".to_owned(), change)], "{next}");
    }
    let tiers =
        |quota: &str, tiers: &str| of(quota, &format!("tiers = {{ by = \"plan\", quotas = {{ {tiers} }} }}"));
    // The own window becomes that of a tier, and the other way round.
    for (earlier, next, change) in [
        (tiers("5/s", "pro = \"9/min\""), tiers("5/min", "pro = \"9/s\""), RuleChange::StartsAgain),
        (
            tiers("5/s", "a = \"9/min\", b = \"9/s\""),
            tiers("5/s", "a = \"9/s\", b = \"9/min\""),
            RuleChange::StartsAgain,
        ),
        (tiers("5/s", "pro = \"9/min\""), of("5/s", ""), RuleChange::StartsAgain),
        (of("5/s", ""), tiers("5/s", "pro = \"9/min\""), RuleChange::StartsAgain),
        (tiers("5/s", "pro = \"9/s\""), tiers("5/s", "pro = \"8/s\""), RuleChange::Changed),
        (tiers("5/s", "pro = \"9/s\""), tiers("5/s", "top = \"9/s\""), RuleChange::Changed),
        (of("5/s", ""), tiers("5/s", "pro = \"9/s\""), RuleChange::Changed),
        (
            of("5/s", ""),
            of("5/s", "leaving = { by = \"class\", units = { batch = 2 } }"),
            RuleChange::Changed,
        ),
    ] {
        assert_eq!(changes(&[&earlier], &[&next]), [("0".to_owned(), change)], "{earlier}\n{next}");
    }
    // The same key, written otherwise.
    let spaced = "quota = \"5/s\"\nby = \" ip\"";
    assert_eq!(changes(&[&first], &[spaced]), []);
    assert_eq!(changes(&[&first], &[&first, &first]), [("1".to_owned(), RuleChange::Added)]);
    assert_eq!(changes(&[&first, &first], &[&first]), [("1".to_owned(), RuleChange::Removed)]);
}

#[test]
fn requests_that_never_pass_are_named() {
    let warnings = |fields: &str| {
        let file = file(&[&format!("by = \"ip\"\n{fields}")]);
        warnings(&file).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let tiers = "tiers = { by = \"plan\", quotas = { free = \"4/min\", pro = \"600/min\" } }";
    let leaving = "leaving = { by = \"class\", units = { batch = 2 } }";
    assert_eq!(
        warnings(&format!("quota = \"60/min\"\ncost = 5\n{tiers}")),
        [r#"line 5, rule "0", cost: 5: never passes for requests of the tier "free" (at most 4)"#]
    );
    assert_eq!(
        warnings(&format!("quota = \"6/min\"\ncost = 5\n{leaving}")),
        [r#"line 5, rule "0", cost: 5: never passes for requests of the class "batch" (at most 4)"#]
    );
    let both = warnings(&format!("quota = \"4/min\"\ncost = 5\n{tiers}\n{leaving}"));
    assert_eq!(
        both,
        [
            "line 5, rule \"0\", cost: 5: never passes for requests without a tier or a class (at most 4), requests of the \
          tier \"free\" (at most 4), requests of the class \"batch\" (at most 2), requests of the tier \"free\" and the \
          class \"batch\" (at most 2)"
        ]
    );
    assert!(warnings(&format!("quota = \"60/min\"\ncost = 4\n{tiers}")).is_empty());
    assert!(warnings(&format!("quota = \"60/min\"\ncost = 5\nquota-by = \"bought\"\n{tiers}")).is_empty());
    let many: Vec<String> = (0..9).map(|n| format!("t{n} = \"1/min\"")).collect();
    let many = format!("tiers = {{ by = \"plan\", quotas = {{ {} }} }}", many.join(", "));
    let many = warnings(&format!("quota = \"60/min\"\ncost = 5\n{many}"));
    assert!(many[0].ends_with("requests of the tier \"t4\" (at most 1), and 4 more"), "{many:?}");
}

#[test]
fn words_name_each_option_of_a_rule() {
    let fields = r#"
quota = "60/min"
by = "user | ip"
when = { path = "/api/*" }
exempt = ["10.0.0.0/8", "cors-preflight", "health"]
missing-key = "one-key"
reserve = "tokens"
reserve-at-most = "1/2"
count-if = "failed"
tiers = { by = "plan", quotas = { pro = "600/min" } }
leaving = { by = "class", units = { batch = 20 } }
block = { after = 20, for = "15m" }"#;
    let file = file(&[fields]);
    assert_eq!(
        in_words(&file.rules()[0]),
        "60 per minute for each user, else client address; at most 60 at once (gcra); only of /api/*; not for 10.0.0.0/8 or \
         cors-preflight or health; requests without a key share one; a request reserves what tokens says; at most 1/2 of the \
         quota; responses count by what failed says; by plan: 600/min for pro; by class: batch leaves 20; after 20 denials \
         within 1 minute blocked for 15 minutes"
    );
    assert_eq!(
        application_names(&file.rules()[0]),
        [
            ("key", "user"),
            ("cost", "tokens"),
            ("class", "plan"),
            ("class", "class"),
            ("count_if", "failed"),
            ("exempt", "health")
        ]
    );
}

#[test]
fn words_name_the_limit_the_algorithm_and_the_key() {
    let words = |text: &str| in_words(&text.parse::<RuleConfig>().unwrap());
    assert_eq!(words("api=5/10s"), "5 per 10 seconds for each client address; at most 5 at once (gcra)");
    assert_eq!(
        words("x=1/d,algorithm=fixed-window,key=global"),
        "1 per day for all callers together; fixed-window"
    );
    assert_eq!(
        words("x=2/s,algorithm=leaky-bucket,max-wait=5s,key=header:x-key+method|ip"),
        "2 per second for each value of the header x-key and method, else client address; 1 at once, others delayed for at \
         most 5 seconds (leaky-bucket)"
    );
    assert_eq!(
        words("a,b=2,max-wait=5s,ttl=3s,key=global"),
        "2 in flight for all callers together; others wait for at most 5 seconds (in-flight, time to live of 3 seconds)"
    );
    let words = |fields: &str| {
        let file = format!("[[rule]]\nname = \"a\"\nby = \"global\"\n{fields}");
        in_words(&RuleFile::from_toml(&file).unwrap().rules()[0])
    };
    assert_eq!(
        words("in-flight = 2"),
        "2 in flight for all callers together; others are refused (in-flight, time to live of 15 seconds)"
    );
    assert_eq!(
        words("in-flight = 2\nmax-wait = \"5s\"\nttl = \"3s\""),
        "2 in flight for all callers together; others wait for at most 5 seconds (in-flight, time to live of 3 seconds)"
    );
    assert_eq!(
        words("quota = \"1/s\"\nwhen = { path = [\"/a\", \"/b/*\"], method = \"GET\" }"),
        "1 per second for all callers together; at most 1 at once (gcra); only of /a or /b/* by GET"
    );
    assert_eq!(
        words("quota = \"1/s\"\nmode = \"shadow\""),
        "1 per second for all callers together; at most 1 at once (gcra); in shadow: refuses nothing"
    );
    assert_eq!(
        words("quota = \"1/d\"\nalgorithm = \"fixed-window\"\nblock = { after = 20, for = \"15m\" }"),
        "1 per day for all callers together; fixed-window; after 20 denials within 1 day blocked for 15 minutes"
    );
    for (fields, rate) in [
        ("quota = \"9/month\"\nzone = \"America/New_York\"", "9 per month in America/New_York"),
        ("quota = \"9/month\"\nzone = \"UTC\"\nanchor = 31", "9 per month from its day 31 on in UTC"),
        ("quota = \"9/week\"\nzone = \"UTC\"\nanchor = 7", "9 per week from its day 7 on in UTC"),
        ("quota = \"9/day\"\nzone = \"Asia/Kolkata\"", "9 per day in Asia/Kolkata"),
    ] {
        assert_eq!(words(fields), format!("{rate} for all callers together; calendar-window"));
    }
}
