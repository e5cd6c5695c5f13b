//! `tollgate check` and `tollgate explain`, without a Redis and with one.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_conformance::servers::{Kind, Server};

use crate::run::{load, row, shown, tollgate};

/// Writes a file of rules, and returns its path.
fn file(text: impl AsRef<[u8]>) -> String {
    file_of("toml", text)
}

fn file_of(extension: &str, text: impl AsRef<[u8]>) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rules-{number}.{extension}"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

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
        "quota = \"9/s\"\nlease = \"5s\"",
        r#"line 5, rule "api", lease: "5s": only a rule with in-flight takes it"#,
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
        r#"line 5, rule "api", reserve-at-most: "1/2": it bounds the estimate of reserve, which is missing"#,
    ),
    (
        "quota = \"9/s\"\ncost = 2\nreserve = \"tokens\"",
        r#"line 6, rule "api", reserve: "tokens": it takes the place of cost: remove one of them"#,
    ),
    (
        "quota = \"9/s\"\ntiers = { by = \"plan\", quotas = { pro = 90 } }",
        r#"line 5, rule "api", tiers: {"by":"plan","quotas":{"pro":90}}: tier "pro" needs a quota such as "100/min""#,
    ),
    ("quota = \"9/s\"\nblock = { after = 20 }", r#"line 5, rule "api", block: missing field `for`"#),
    (
        "quota = \"9/s\"\nblock = { after = \"20\", for = \"5m\" }",
        r#"line 5, rule "api", block.after: invalid type: string "20", expected a whole number from 0 to 4294967295"#,
    ),
    ("quota = \"9/s\"\n[rule]\nname = \"b\"", r#"line 5: "[rule]" is not TOML: duplicate key"#),
    ("quota = \"9/s", r#"line 4: "quota = \"9/s" is not TOML: invalid basic string, expected `"`"#),
];

/// Whole files with one mistake each.
const ONE_MISTAKE_IN_A_FILE: [(&str, &str, &str); 8] = [
    ("toml", "", "line 1: missing field `rule`"),
    ("toml", "[rule]\nname = \"a\"", "line 1, rule: invalid type: map, expected a list: [[rule]] in TOML"),
    ("toml", "[[rules]]\nname = \"a\"", "line 1, rules: unknown field `rules`, expected `$schema` or `rule`"),
    ("toml", "[[rule]]\nname = \"a\"\nquota = \"5/s\"", "line 1, rule \"a\": missing field `by`"),
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
        "line 2: \"{\\\"name\\\": \\\"a\\\", \\\"quota\\\": \\\"5/s\\\", \\\"by\\\": \\\"ip\\\"},]}\" is not JSON: expected value",
    ),
    ("json", "{\"rule\": []}", "line 1, rule: no rules: nothing would be limited"),
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

const RULES: &str = r#"
[[rule]]
name = "burst"
quota = "10/s burst 20"
by = "ip"
exempt = ["10.0.0.0/8", "health"]

[[rule]]
name = "api"
quota = "60/min"
by = "user | ip"
when = { path = "/api/*" }
cost = "kib"
tiers = { by = "plan", quotas = { pro = "600/min" } }

[[rule]]
name = "token"
quota = "5/d"
by = "bearer + method"
algorithm = "fixed-window"
when = { path = "/log-in", method = "POST" }
"#;

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

/// What is said of a rule: the line after its words.
#[track_caller]
fn said<'a>(explained: &'a str, rule: &str) -> &'a str {
    let mut lines = explained.lines();
    lines.find(|line| line.starts_with(&format!("{rule}: "))).unwrap_or_else(|| panic!("{explained}"));
    lines.next().unwrap().trim_start()
}

#[test]
fn a_request_is_explained_rule_by_rule() {
    let path = file(RULES);
    let explain = |more: &[&str]| shown(&[&["explain", &path], more].concat());
    let api = ["--path", "/api/users?x=1", "--peer", "192.0.2.1"];
    let explained = explain(&api);
    assert_eq!(said(&explained, "burst"), "key @192.0.2.1, cost 1, 20 of 20 left: passes");
    assert_eq!(
        said(&explained, "api"),
        "not explained: only the application knows its key user, its cost kib, its class plan (see --given)"
    );
    assert_eq!(said(&explained, "token"), "does not apply to the request");
    let end = "by the rules that are explained, the request passes\n\
               Without --redis, each key is shown as if it had used nothing.\n";
    assert!(explained.ends_with(end), "{explained}");

    let pro = ["--given", "key user=ada", "--given", "class plan=pro", "--given", "cost kib=200"];
    let explained = explain(&[&api[..], &pro].concat());
    assert_eq!(said(&explained, "api"), "key 0|=hidden, cost 200, 600 of 600 left: passes");
    assert!(explained.contains("\nthe request passes\n"), "{explained}");
    let free = ["--given", "key user=#42", "--given", "class plan=free", "--given", "cost kib=200"];
    let explained = explain(&[&api[..], &free].concat());
    assert_eq!(
        said(&explained, "api"),
        "key 0|=hidden, cost 200, 60 of 60 left: is refused with 422 Unprocessable Entity: the cost exceeds the whole \
         quota: api"
    );
    assert!(explained.contains("\nthe request is refused with 422 "), "{explained}");

    let log_in = ["--path", "/log-in", "--method", "POST", "--peer", "[2001:db8::1]:4000"];
    let explained = explain(&log_in);
    assert_eq!(
        said(&explained, "token"),
        "is refused with 400 Bad Request: the request carries no key: token"
    );
    let explained = explain(&[&log_in[..], &["--header", "authorization: Bearer sesame"]].concat());
    assert_eq!(said(&explained, "token"), "key (=hidden,=POST), cost 1, 5 of 5 left: passes");
    assert!(said(&explained, "burst").starts_with("key @2001%3Adb8%3A%3A/64, cost 1, "), "{explained}");

    assert!(explain(&["--peer", "10.0.0.1"]).contains("does not apply: the request is exempt"));
    let hops = ["--trust", "10.0.0.0/8", "--client-ip-header", "x-forwarded-for"];
    let proxied = ["--peer", "10.0.0.1", "--header", "x-forwarded-for: 192.0.2.7"];
    assert!(explain(&[&hops[..], &proxied].concat()).contains("key @192.0.2.7, "));
    let unknown = explain(&[]);
    assert!(
        said(&unknown, "burst")
            .ends_with("the server does not provide the peer's address: burst (give --peer)")
    );
}

#[test]
fn rules_that_cannot_be_explained_do_not_hide_the_others() {
    let rules = "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"path\"\n\
                 [[rule]]\nname = \"b\"\nquota = \"5/s\"\nby = \"ip\"\nquota-by = \"claims\"\n";
    let explained = shown(&["explain", &file(rules)]);
    assert_eq!(
        said(&explained, "a"),
        "not explained: only the application knows its route path (see --given)"
    );
    assert_eq!(
        said(&explained, "b"),
        "not explained: only the application knows its quota claims (see --given)"
    );
    assert!(!explained.contains("the request "), "{explained}");
    let elsewhere = file("[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"ip\"\nwhen = { path = \"/a\" }");
    let explained = shown(&["explain", &elsewhere]);
    assert_eq!(said(&explained, "a"), "does not apply to the request");
    assert!(!explained.contains("\nthe request "), "{explained}");
}

#[test]
fn an_explanation_hides_secrets() {
    let by = |name: &str, by: &str| format!("[[rule]]\nname = \"{name}\"\nquota = \"5/s\"\nby = \"{by}\"\n");
    let rules = by("a", "header:x-api-key")
        + &by("b", "cookie:s")
        + &by("c", "bearer | user")
        + &by("d", "basic-user | user");
    let headers = ["x-api-key: sesame", "cookie: s=sesame"].map(|header| ["--header", header]).concat();
    for authorization in ["authorization: Bearer sesame", "authorization: Basic c2VzYW1lOnNlc2FtZQ=="] {
        let path = file(&rules);
        let more = ["explain", &path, "--given", "key user==sesame", "--header", authorization];
        let explained = shown(&[&more[..], &headers].concat());
        assert!(!explained.contains("sesame") && !explained.contains("c2Vz"), "{explained}");
        assert_eq!(explained.matches("hidden, cost 1, 5 of 5 left: passes").count(), 4, "{explained}");
    }
    for arguments in
        [["--header", "sesame"], ["--header", "x-key: \u{1}sesame"], ["--given", "key user=(sesame"]]
    {
        let ran = tollgate(&[&["explain", &file(by("a", "user"))], &arguments[..]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert!(!ran.stderr.contains("sesame"), "{}", ran.stderr);
    }
}

#[test]
fn an_explanation_shows_what_is_left_in_a_redis_and_charges_nothing() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let rule = |name: &str, quota: &str, more: &str| {
        format!("[[rule]]\nname = \"{name}\"\nquota = \"{quota}\"\nby = \"header:x-user\"\n{more}\n")
    };
    let text = rule("day", "100/d", "cost = 3\nalgorithm = \"fixed-window\"") + &rule("api", "40/d", "");
    let path = file(text);
    let explain = |more: &[&str]| {
        shown(&[&["explain", &path, "--redis", &url, "--header", "x-user: 1"], more].concat())
    };
    let charge = |requests: &str, more: &[&str]| {
        let policies = ["--policy", "day=100/d,algorithm=fixed-window", "--policy", "api=40/d"];
        let all = ["--redis", &url, "--prefix", "tollgate", "-n", requests, "-c", "1"];
        load(&[&all[..], &policies, more].concat());
    };
    charge("30", &[]);
    for _ in 0..50 {
        let explained = explain(&[]);
        assert_eq!(said(&explained, "day"), "key =hidden, cost 3, 70 of 100 left: passes");
        assert_eq!(said(&explained, "api"), "key =hidden, cost 1, 10 of 40 left: passes");
        assert!(explained.ends_with("\nthe request passes\n"), "{explained}");
    }
    charge("10", &[]);
    let explained = explain(&[]);
    assert_eq!(said(&explained, "day"), "key =hidden, cost 3, 60 of 100 left: passes");
    let refused = "is refused with 429 Too Many Requests: quota exceeded: api, retry after ";
    assert!(said(&explained, "api").starts_with(&format!("key =hidden, cost 1, 0 of 40 left: {refused}")));
    assert!(explained.contains(&format!("\nthe request {refused}")), "{explained}");
    assert_eq!(row(&shown(&["look", "=1", "--redis", &url]), "day")[4], "40", "nothing was charged");

    let secret = ["--secret", "sesame"];
    assert!(explain(&secret).contains("100 of 100 left"));
    charge("5", &secret);
    assert!(explain(&secret).contains("95 of 100 left"));
    assert!(explain(&["--prefix", "other"]).contains("100 of 100 left"));
}

#[test]
fn a_blocked_key_and_taken_slots_are_explained() {
    let redis = Server::start(Kind::Valkey9_1).unwrap();
    let url = redis.url();
    let rules = "[[rule]]\nname = \"log-ins\"\nquota = \"5/min\"\nby = \"ip\"\nblock = { after = 3, for = \"15m\" }\n\
                 [[rule]]\nname = \"slots\"\nin-flight = 2\nby = \"ip\"\n";
    let path = file(rules);
    let explain = || shown(&["explain", &path, "--redis", &url, "--peer", "192.0.2.1"]);
    let explained = explain();
    assert_eq!(said(&explained, "slots"), "key @192.0.2.1, cost 1, 2 of 2 left: passes");
    shown(&["block", "@192.0.2.1", "--policy", "log-ins", "--for", "15m", "--redis", &url]);
    let explained = explain();
    let blocked =
        "is refused with 429 Too Many Requests: blocked after too many refusals: log-ins, retry after ";
    assert!(said(&explained, "log-ins").contains(blocked), "{explained}");
    assert!(explained.contains(&format!("\nthe request {blocked}")), "{explained}");
}

#[test]
fn what_cannot_be_read_or_understood_is_one_error_line() {
    let valid = file("[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"user\"");
    let binary = file([0xff, 0xfe, b'x']);
    let folder = env!("CARGO_TARGET_TMPDIR");
    for (arguments, hint) in [
        (&["check", "no\u{7}file"][..], "no\u{fffd}file: "),
        (&["check", folder], "irectory"),
        (&["check", &binary], "UTF-8"),
        (&["check", &valid, "--before", &binary], "UTF-8"),
        (&["explain", &binary], "UTF-8"),
        (&["explain"], "<FILE>"),
        (&["explain", &valid, "--method", "get"], "--method \"get\": expected one such as GET"),
        (&["explain", &valid, "--path", "api"], "--path: expected one such as /api/users"),
        (&["explain", &valid, "--header", "x y: 1"], "--header: expected a name, a colon and a value"),
        (&["explain", &valid, "--peer", "localhost"], "--peer \"localhost\": expected one such as"),
        (&["explain", &valid, "--trust", "10.0.0.0/8"], "--client-ip-header"),
        (
            &["explain", &valid, "--trust", "x", "--client-ip-header", "x"],
            "--trust: \"x\" is neither a network",
        ),
        (&["explain", &valid, "--given", "key usr=ada"], "--given key usr: no rule of the file has it"),
        (&["explain", &valid, "--given", "key user"], "--given: expected 'key NAME=KEY'"),
        (&["explain", &valid, "--given", "cost user=1"], "--given cost user: no rule of the file has it"),
        (&["explain", &valid, "--redis", "127.0.0.1:1"], "--redis: "),
    ] {
        let ran = tollgate(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {}", ran.stderr);
        assert!(
            ran.stderr.starts_with("error: ") && ran.stderr.contains(hint),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn control_characters_of_a_file_are_replaced() {
    let junk = "\\u001b[31m\\u0007";
    let words = format!(
        "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"ip\"\nexempt = \"{junk}\"\nreserve = \"{junk}\"\ntiers = {{ by = \"{junk}\", quotas = {{ \"{junk}\" = \"5/s\" }} }}"
    );
    let wrong = format!("[[rule]]\n\"{junk}\" = \"{junk}\"\nname = \"{junk}\"");
    for text in [words, wrong] {
        let path = file(text);
        for command in ["check", "explain"] {
            let ran = tollgate(&[command, &path]);
            let all = ran.stdout + &ran.stderr;
            assert!(!all.is_empty() && !all.contains(['\u{1b}', '\u{7}']), "{all:?}");
        }
    }
    let long = format!("[[rule]]\nname = \"{}\"\nquota = \"5/s\"\nby = \"ip\"", "x".repeat(1_000_000));
    assert!(tollgate(&["check", &file(long)]).stdout.len() < 10_000);
}
