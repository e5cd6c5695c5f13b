//! `tollgate check`: mistakes, words, warnings and changes.

use crate::rules::{RULES, file, file_of};
use crate::run::{shown, tollgate};

/// The lines of a check that finds mistakes, without the path.
#[track_caller]
fn mistakes(path: &str) -> Vec<String> {
    let ran = tollgate(&["check", path]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""), "{}", ran.stdout);
    let mistake = |line: &str| line.strip_prefix(&format!("{path}: ")).unwrap().to_owned();
    ran.stdout.lines().map(mistake).collect()
}

/// Fields of a rule of the name `api` by `ip`, from line 4 on, each with one mistake.
const ONE_MISTAKE: [(&str, &str); 31] = [
    (
        "quota = \"100\"",
        r#"line 4, rule "api", quota: "100" is not a quota: expected LIMIT/WINDOW, such as 100/min or 5/10s burst 20"#,
    ),
    (
        "quota = \"100/fortnight\"",
        r#"line 4, rule "api", quota: "fortnight" is not a time such as 10s, 500ms, 5min, h or d"#,
    ),
    ("quota = \"0/s\"", r#"line 4, rule "api", quota: "0" is not a whole number from 1 to 1099511627776"#),
    (
        "quota = 100",
        r#"line 4, rule "api", quota: invalid type: integer `100`, expected a string such as "100/min burst 20""#,
    ),
    (
        "quota = \"9/s\"\nqoute = \"9/s\"",
        r#"line 5, rule "api", qoute: unknown field `qoute`, expected one of FIELDS"#,
    ),
    ("", r#"line 1, rule "api", quota: missing: write quota = "100/min", or in-flight = 20"#),
    (
        "quota = \"9/s\"\nin-flight = 3",
        r#"line 5, rule "api", in-flight: 3: a rule has a quota or requests in flight: make two rules"#,
    ),
    ("in-flight = 0", r#"line 4, rule "api", in-flight: 0: at least 1 request must be allowed"#),
    (
        "in-flight = 3\nalgorithm = \"gcra\"",
        r#"line 5, rule "api", algorithm: "gcra": only a rule with a quota takes it, and this one has in-flight"#,
    ),
    (
        "quota = \"9/s\"\nalgorithm = \"token-bucket\"",
        r#"line 5, rule "api", algorithm: unknown variant `token-bucket`, expected one of `gcra`, `leaky-bucket`, `fixed-window`, `fixed-window-aligned`, `sliding-window`, `sliding-buckets`, `sliding-log`"#,
    ),
    (
        "quota = \"9/s burst 20\"\nalgorithm = \"fixed-window\"",
        r#"line 4, rule "api", quota: "9/s burst 20": a burst has no meaning for a window algorithm: choose gcra, or remove the burst"#,
    ),
    (
        "quota = \"9/s\"\nbuckets = 60",
        r#"line 5, rule "api", buckets: 60: only sliding-buckets takes it, and the algorithm is gcra"#,
    ),
    (
        "quota = \"9/s\"\nalgorithm = \"sliding-buckets\"\nbuckets = -1",
        r#"line 6, rule "api", buckets: invalid value: integer `-1`, expected a whole number from 0 to 4294967295"#,
    ),
    (
        "quota = \"999999/s\"\nalgorithm = \"sliding-log\"",
        r#"line 4, rule "api", quota: "999999/s": sliding-log takes limits up to 100000: max-limit sets another"#,
    ),
    (
        "quota = \"9/s\"\nmax-wait = \"5s\"",
        r#"line 5, rule "api", max-wait: "5s": only leaky-bucket and in-flight take it, and the algorithm is gcra"#,
    ),
    (
        "quota = \"9/s\"\nttl = \"5s\"",
        r#"line 5, rule "api", ttl: "5s": only a rule with in-flight takes it"#,
    ),
    (
        "quota = \"9/s\"\nwhen = { path = \"api/*\" }",
        r#"line 5, rule "api", when.path: "api/*" is not a path such as /api/*: it begins with /, has * only at its end, and no query"#,
    ),
    (
        "quota = \"9/s\"\nwhen = { method = \"post\" }",
        r#"line 5, rule "api", when.method: "post" is not a method such as GET or POST, in capitals"#,
    ),
    (
        "quota = \"9/s\"\nwhen = { host = \"a.example\" }",
        r#"line 5, rule "api", when.host: unknown field `host`, expected one of `path`, `method`, `header`"#,
    ),
    (
        "quota = \"9/s\"\nwhen = \"/api/*\"",
        r#"line 5, rule "api", when: invalid type: string "/api/*", expected a table such as { path = "/api/*" }"#,
    ),
    (
        "quota = \"9/s\"\nexempt = 5",
        r#"line 5, rule "api", exempt: invalid type: integer `5`, expected a string such as "10.0.0.0/8", or a list of them"#,
    ),
    (
        "quota = \"9/s\"\nmissing-key = \"ignore\"",
        r#"line 5, rule "api", missing-key: unknown variant `ignore`, expected one of `refuse`, `skip`, `one-key`"#,
    ),
    ("quota = \"9/s\"\ncost = 10", r#"line 5, rule "api", cost: 10: no request would pass: at most 9"#),
    ("quota = \"9/s\"\ncost = 0", r#"line 5, rule "api", cost: 0: nothing would be limited: at least 1"#),
    (
        "quota = \"9/s\"\nreserve-at-most = \"1/2\"",
        r#"line 5, rule "api", reserve-at-most: "1/2": it bounds the estimate of reserve, which is missing: name a cost of the registry there, or remove this"#,
    ),
    (
        "quota = \"9/s\"\ncost = 2\nreserve = \"tokens\"",
        r#"line 6, rule "api", reserve: "tokens": it takes the place of cost: remove one of them"#,
    ),
    (
        "quota = \"9/s\"\ntiers = { by = \"plan\", quotas = { pro = 90 } }",
        r#"line 5, rule "api", tiers: {"by":"plan","quotas":{"pro":90}}: tier "pro" needs a quota such as "100/min""#,
    ),
    (
        "quota = \"9/s\"\nblock = { after = 20 }",
        r#"line 5, rule "api", block: missing field `for`: how long a block lasts, such as for = "15m""#,
    ),
    (
        "quota = \"9/s\"\nblock = { after = \"20\", for = \"5m\" }",
        r#"line 5, rule "api", block.after: invalid type: string "20", expected a whole number from 0 to 4294967295"#,
    ),
    (
        "quota = \"9/s\"\n[rule]\nname = \"b\"",
        r#"line 5: not TOML: duplicate key: write [[rule]] for each rule"#,
    ),
    ("quota = \"9/s", r#"line 4: not TOML: invalid basic string, expected `"`"#),
];

/// Whole files with one mistake each.
const ONE_MISTAKE_IN_A_FILE: [(&str, &str, &str); 8] = [
    (
        "toml",
        "",
        "line 1: missing field `rule`: each rule begins with [[rule]] in TOML, and is in the list \"rule\" in JSON",
    ),
    ("toml", "[rule]\nname = \"a\"", "line 1, rule: invalid type: map, expected a list: [[rule]] in TOML"),
    ("toml", "[[rules]]\nname = \"a\"", "line 1, rules: unknown field `rules`, expected `$schema` or `rule`"),
    (
        "toml",
        "[[rule]]\nname = \"a\"\nquota = \"5/s\"",
        "line 1, rule \"a\": missing field `by`: what divides the quota among callers, such as by = \"ip\"",
    ),
    (
        "toml",
        "[[rule]]\nname = \"\"\nquota = \"5/s\"\nby = \"ip\"",
        "line 2, rule \"\", name: \"\": a policy's name must be 1 to 128 characters of printable ASCII",
    ),
    (
        "json",
        "{\"rule\": [\n{\"name\": \"a\", \"quota\": \"5/s\", \"by\": \"IP\"}]}",
        "line 2, rule \"a\", by: \"IP\" is not a key: use ip, bearer, basic-user, header:NAME, cookie:NAME, path, method, global, joined with + or |, or a name of the registry",
    ),
    (
        "json",
        "{\"rule\": [\n{\"name\": \"a\", \"quota\": \"5/s\", \"by\": \"ip\"},]}",
        "line 2: not JSON: expected value",
    ),
    (
        "json",
        "{\"rule\": []}",
        "line 1, rule: no rules: nothing would be limited; a rule has name, quota and by",
    ),
];

#[test]
fn a_mistake_is_one_line_that_says_how_to_correct_it() {
    let fields = ONE_MISTAKE.iter().map(|(fields, message)| {
        (file(format!("[[rule]]\nname = \"api\"\nby = \"ip\"\n{fields}\n")), *message)
    });
    let files =
        ONE_MISTAKE_IN_A_FILE.iter().map(|(extension, text, message)| (file_of(extension, text), *message));
    for (path, message) in fields.chain(files) {
        let found = mistakes(&path);
        // The list of all fields grows.
        match message.strip_suffix("FIELDS") {
            Some(start) => assert!(found[0].starts_with(start) && found[0].contains("`quota`"), "{found:#?}"),
            None => assert_eq!(found[0], message),
        }
        // A misspelled list leaves the file without rules, too.
        assert!(found.len() == 1 || message.contains("rules"), "{found:#?}");
        let ran = tollgate(&["explain", &path]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{message}");
        assert_eq!(ran.stderr, format!("error: {path}: {}\n", found[0]));
    }
}

#[test]
fn a_check_lists_all_mistakes() {
    let rule = |fields: &str| format!("[[rule]]\nby = \"ip\"\n{fields}\n");
    let text = rule("name = \"a\"\nquota = \"5/x\"\ncost = -1")
        + &rule("name = \"a\"\nquota = \"5/s\"\nbrust = 3")
        + &rule("name = \"c\"\nquota = \"5/s\"");
    let places: Vec<String> =
        mistakes(&file(text)).iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect();
    let expected = [
        "line 4, rule \"a\", quota",
        "line 5, rule \"a\", cost",
        "line 8, rule \"a\", name",
        "line 10, rule \"a\", brust",
    ];
    assert_eq!(places, expected);
}

#[test]
fn a_check_says_what_rules_mean_and_what_the_application_provides() {
    assert_eq!(
        shown(&["check", &file(RULES)]),
        "burst: 10 per second for each client address; at most 20 at once (gcra); not for 10.0.0.0/8 or health\n\
         api: 60 per minute for each user, else client address; at most 60 at once (gcra); only of /api/*; a request \
         costs kib; by plan: 600/min for pro\n\
         token: 5 per day for each bearer token and method; fixed-window; only of /log-in by POST\n\
         names of the application: class plan, cost kib, exempt health, key user\n"
    );
}

#[test]
fn a_check_refuses_what_a_service_refuses_and_names_what_never_passes() {
    let rule = |fields: &str| format!("[[rule]]\nname = \"a\"\nquota = \"60/min\"\nby = \"ip\"\n{fields}\n");
    let place = |path: &str| mistakes(path)[0].split(": ").next().unwrap().to_owned();
    for network in ["10.0.0.0/33", "10.0.0", "256.0.0.1", "fe80::/200", "10.0.0.0/8 ,192.0.2.1"] {
        let path = file(rule(&format!("exempt = [\"10.0.0.0/8\", \"{network}\"]")));
        assert_eq!(place(&path), "line 5, rule \"a\", exempt.1", "{network}");
    }
    let by_position = "{\"rule\": [\n[\"a\", \"60/min\", null, null, null, \"ip\"]]}";
    assert_eq!(place(&file_of("json", by_position)), "line 2");
    let null = "{\"rule\": [\n{\"name\": \"a\", \"quota\": \"60/min\", \"by\": \"ip\", \"cost\": null}]}";
    assert_eq!(place(&file_of("json", null)), "line 2, rule \"a\", cost");
    let deep = rule(&format!("{}a = 1", "a.".repeat(1_000)));
    assert_eq!(place(&file(deep)), "line 5");
    let tiers = "cost = 5\ntiers = { by = \"plan\", quotas = { free = \"4/min\" } }";
    let shown = shown(&["check", &file(rule(tiers))]);
    let never =
        "warning: line 5, rule \"a\", cost: 5: never passes for requests of the tier \"free\" (at most 4)\n";
    assert!(shown.ends_with(never), "{shown}");
}

#[test]
fn a_check_says_nothing_of_a_file_that_is_no_rules() {
    for text in ["TOKEN=sesame\n", "sesame = \"sesame\"", "{\"sesame\": \"sesame\"}", "\"sesame\""] {
        for path in [file(text), file_of("json", text)] {
            for command in ["check", "explain"] {
                let ran = tollgate(&[command, &path]);
                let all = ran.stdout + &ran.stderr;
                // The name of a field is shown.
                let is_name = text.starts_with("sesame") || text.starts_with("{\"sesame");
                assert!(is_name || (!all.is_empty() && !all.contains("sesame")), "{all}");
                assert!(all.matches("sesame").count() <= 4, "{all}");
            }
        }
    }
}

#[test]
fn a_check_warns_of_ways_around_rules_and_of_rules_that_start_again() {
    let by =
        |quota: &str, by: &str| format!("[[rule]]\nname = \"api\"\nquota = \"{quota}\"\nby = \"{by}\"\n");
    let bearer = file(by("60/min", "bearer"));
    let words = "api: 60 per minute for each bearer token; at most 60 at once (gcra)\n";
    let warning = "warning: line 4, rule \"api\", by: \"bearer\": a caller that invents a new bearer token for each request is \
                   not limited: add a rule by ip, unless an outer layer checks it\n";
    assert_eq!(shown(&["check", &bearer]), format!("{words}{warning}"));
    let starts = "warning: rule \"api\" starts again: what keys have used of it is forgotten\n";
    for earlier in [by("60/h", "bearer"), by("60/min", "ip")] {
        let shown = shown(&["check", &bearer, "--before", &file(earlier)]);
        assert_eq!(shown, format!("{words}{warning}{starts}"));
    }
    let changed = shown(&["check", &bearer, "--before", &file(by("6/min", "bearer"))]);
    assert_eq!(changed, format!("{words}{warning}rule \"api\" is changed\n"));
    let same = shown(&["check", &bearer, "--before", &bearer]);
    assert_eq!(same, format!("{words}{warning}"));
}
