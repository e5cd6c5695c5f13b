//! `tollgate look` and `tollgate reset`.

use tollgate_test_servers::{Cluster, Kind, Sentinel, Server};

use crate::playground::Playground;
use crate::run::{load, row, shown, tollgate};

const ALGORITHMS: [&str; 7] = [
    "gcra",
    "leaky-bucket",
    "fixed-window",
    "fixed-window-aligned",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
];

/// Charges 30 units to the key `=1`, with the prefix of services.
fn charge(redis: &str, policies: &[&str]) {
    load(&[&["--redis", redis, "--prefix", "tollgate", "-n", "30", "-c", "1"], policies].concat());
}

fn policies() -> Vec<String> {
    let policy = |name: &&str| [String::from("--policy"), format!("{name}=100/d,algorithm={name}")];
    let mut policies: Vec<String> = ALGORITHMS.iter().flat_map(policy).collect();
    // Otherwise each request waits for a slot.
    policies[3].push_str(",burst=100");
    policies
}

#[test]
fn a_key_is_shown_in_each_policy_that_is_given() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let policies = policies();
    let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
    charge(&redis.url(), &policies);
    let url = redis.url();
    let table = shown(&[&["look", "=1", "--redis", &url], &policies[..]].concat());
    assert!(table.starts_with("key =1\n"), "{table}");
    for name in ALGORITHMS {
        assert_eq!(row(&table, name)[..7], [name, name, "1day", "100", "30", "70", "now"], "{table}");
    }
    let other = shown(&["look", "another", "--redis", &url, "--policy", "gcra=100/d"]);
    assert_eq!(row(&other, "gcra")[3..], ["100", "0", "100", "now", "now"], "nothing was charged");
}

#[test]
fn a_calendar_window_is_shown_with_its_end() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let name = "tollgate:2:{=1}:monthly~calendar-window~31d~ends";
    let time = redis.command(&["TIME"]).unwrap();
    let seconds: u64 = time.lines().next().unwrap().parse().unwrap();
    let state = format!("3{}000000", seconds + 10 * 86_400);
    redis.command(&["SET", name, &state, "PX", "600000"]).unwrap();
    let table = shown(&["look", "=1", "--redis", &redis.url()]);
    let due = ["monthly", "calendar-window", "31d", "?", "3", "?", "?"];
    let shown_row = row(&table, "monthly");
    assert_eq!(shown_row[..7], due, "{table}");
    let is_ten_days = shown_row[7] == "10days" || shown_row[7].starts_with("9days ");
    assert!(is_ten_days, "{table}");
    shown(&["reset", "=1", "--redis", &redis.url()]);
    assert_eq!(redis.command(&["EXISTS", name]).unwrap(), "0");
}

#[test]
fn policies_are_found_by_the_names_in_redis() {
    let redis = Server::start(Kind::Valkey9_1).unwrap();
    let url = redis.url();
    let policies = policies();
    let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
    charge(&url, &policies);
    // Names of other keys, in several steps of a scan.
    let more = ["--prefix", "tollgate", "--policy", "gcra=9/d", "--keys", "4000", "-n", "8000", "-c", "100"];
    load(&[&["--redis", &url], &more[..]].concat());
    redis.command(&["SET", "tollgate:2:{=1}:strange", "1"]).unwrap();

    let table = shown(&["look", "=1", "--redis", &url]);
    let is_row = |line: &&str| ALGORITHMS.iter().any(|name| line.starts_with(&format!("{name} ")));
    assert_eq!(table.lines().filter(is_row).count(), ALGORITHMS.len(), "{table}");
    for name in ALGORITHMS {
        let used = if name == "gcra" || name == "leaky-bucket" { "?" } else { "30" };
        assert_eq!(row(&table, name)[..7], [name, name, "1day", "?", used, "?", "?"], "{table}");
        assert_ne!(row(&table, name)[7], "now", "{table}");
    }
    // 30 of 100 units a day come back in 7 h 12 min.
    assert!(row(&table, "leaky-bucket")[7].starts_with("7h "), "{table}");
    assert!(table.ends_with("not read, since it has another form: strange\n"), "{table}");
    assert_eq!(
        shown(&["look", "stranger", "--redis", &url]),
        "key =stranger\nno policy holds a state of it\n"
    );
}

#[test]
fn names_that_are_no_text_are_shown_without_their_control_characters() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    charge(&url, &["--policy", "api=40/d,algorithm=fixed-window"]);
    redis.command(&["SET", "tollgate:2:{=1}:x\u{1b}[31m\u{7}", "1"]).unwrap();
    let not_utf8 = r"return redis.call('SET', 'tollgate:2:{=1}:\255~gcra~1m', '1')";
    redis.command(&["EVAL", not_utf8, "0"]).unwrap();
    let not_read = ["x\u{fffd}[31m\u{fffd}", "\u{fffd}~gcra~1m"]
        .map(|name| format!("not read, since it has another form: {name}\n"))
        .concat();
    let table = shown(&["look", "=1", "--redis", &url]);
    assert_eq!(row(&table, "api")[4], "30", "{table}");
    assert!(table.ends_with(&not_read), "{table}");
    let reset = shown(&["reset", "=1", "--redis", &url]);
    assert_eq!(reset, format!("key =1\nreset api (fixed-window)\n{not_read}"));
}

#[test]
fn a_reset_forgets_the_policies_given_or_all_that_are_found() {
    let redis = Server::start(Kind::Redis6_2).unwrap();
    let url = redis.url();
    let policies = [
        "--policy",
        "a=40/d,algorithm=fixed-window",
        "--policy",
        "b=40/d,algorithm=sliding-log",
        "--policy",
        "c=40/d",
    ];
    charge(&url, &policies);
    let given = shown(&["reset", "=1", "--redis", &url, "--policy", "a=7/d,algorithm=fixed-window"]);
    assert_eq!(given, "key =1\nreset a (fixed-window)\n", "the limit has no effect");
    let table = shown(&[&["look", "=1", "--redis", &url], &policies[..]].concat());
    assert_eq!((row(&table, "a")[4], row(&table, "b")[4]), ("0", "30"), "{table}");
    let found = shown(&["reset", "=1", "--redis", &url]);
    assert_eq!(found, "key =1\nreset b (sliding-log)\nreset c (gcra)\n");
    assert_eq!(shown(&["reset", "=1", "--redis", &url]), "key =1\nno policy holds a state of it\n");
    let again = load(&[&["--redis", &url, "--prefix", "tollgate", "-n", "50"], &policies[..]].concat());
    assert_eq!(again.counts(), (40, 10, 0), "the whole quota is back");
}

#[test]
fn an_address_of_a_server_is_found_and_reset() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let playground = Playground::start_with(&[
        "--store",
        &redis.url(),
        "--timeout",
        "30s",
        "--rule",
        "api=20/d,algorithm=fixed-window",
    ]);
    load(&[&playground.url("/"), "-n", "12"]);
    let url = redis.url();
    assert_eq!(row(&shown(&["look", "@127.0.0.1", "--url", &url]), "api")[4], "12");
    shown(&["reset", "@127.0.0.1", "--url", &url]);
    assert_eq!(playground.remaining(), 20);
}

#[test]
fn a_server_that_does_not_answer_is_an_error_after_the_timeout() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    redis.pause().unwrap();
    let ran = tollgate(&["look", "=1", "--redis", &redis.url(), "--timeout", "1s"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.starts_with("error: --redis: "), "{}", ran.stderr);
}

#[test]
fn a_cluster_is_searched_on_each_of_its_nodes() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let url = format!("redis-cluster://{}", cluster.nodes()[0].address());
    let policy = ["--policy", "day=30/d,algorithm=fixed-window"];
    let keys = ["--prefix", "tollgate", "--keys", "20", "-n", "2000"];
    load(&[&["--redis", &url], &policy[..], &keys].concat());
    for key in ["=1", "=2", "=3", "=4", "=5", "=6", "=7", "=8"] {
        assert_eq!(row(&shown(&["look", key, "--redis", &url]), "day")[4], "30");
        assert!(shown(&["reset", key, "--redis", &url]).contains("reset day"));
        let table = shown(&[&["look", key, "--redis", &url], &policy[..]].concat());
        assert_eq!(row(&table, "day")[4..6], ["0", "30"], "{table}");
    }
}

/// Names show a digest of the key.
#[test]
fn policies_are_found_with_a_secret() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let policies = ["--policy", "a=5/d,algorithm=fixed-window", "--policy", "b=5/d"];
    charge(&url, &[&["--secret", "sesame"], &policies[..]].concat());
    let table = shown(&["look", "=1", "--redis", &url, "--secret", "sesame"]);
    assert_eq!((row(&table, "a")[4], row(&table, "b")[4]), ("5", "?"), "{table}");
    let nothing = "key =1\nno policy holds a state of it\n";
    assert_eq!(shown(&["look", "=1", "--redis", &url]), nothing);
    assert_eq!(shown(&["look", "=1", "--redis", &url, "--secret", "another"]), nothing);
    let found = shown(&["reset", "=1", "--redis", &url, "--secret", "sesame"]);
    assert_eq!(found, "key =1\nreset a (fixed-window)\nreset b (gcra)\n");
}

#[test]
fn policies_are_found_through_sentinels() {
    let sentinel = Sentinel::start(Kind::Redis8_2).unwrap();
    let sentinels =
        format!("redis-sentinel://{}/{}", sentinel.sentinels()[0].address(), sentinel.master_name());
    charge(&sentinels, &["--policy", "api=5/d,algorithm=fixed-window"]);
    assert_eq!(row(&shown(&["look", "=1", "--redis", &sentinels]), "api")[4], "5");
    let given = ["look", "=1", "--redis", &sentinels, "--policy", "api=5/d,algorithm=fixed-window"];
    assert_eq!(row(&shown(&given), "api")[4..6], ["5", "0"]);
    assert_eq!(shown(&["reset", "=1", "--redis", &sentinels]), "key =1\nreset api (fixed-window)\n");
}

#[test]
fn what_cannot_be_found_is_one_error_line() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    redis.command(&["ACL", "SETUSER", "ada", "on", ">pw", "~*", "+@all", "-scan"]).unwrap();
    for (arguments, hint) in [
        (&["alice", "--redis", "127.0.0.1:1"][..], "--redis: redis: "),
        (&["alice", "--redis", &url[8..], "--user", "ada", "--password", "pw"], "scan"),
        (&["alice", "--redis", "127.0.0.1:1", "--policy", "api=5/s"], "--redis: "),
        (&["127.0.0.1", "--redis", &url], "write '@127.0.0.1' or '=127.0.0.1'"),
        (&["alice", "--redis", &url, "--policy", "api"], "expected NAME=LIMIT/WINDOW"),
        (&[], "<KEY>"),
    ] {
        for command in ["look", "reset"] {
            let ran = tollgate(&[&[command], arguments].concat());
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
            assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {}", ran.stderr);
            assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(hint), "{}", ran.stderr);
        }
    }
    let secret = ["--secret", "sesame", "--policy", "api=5/d"];
    charge(&url, &secret);
    assert_eq!(
        row(&shown(&[&["look", "=1", "--redis", &url], &secret[..]].concat()), "api")[4..6],
        ["5", "0"]
    );
}

#[test]
fn a_credit_gives_units_back_and_shows_what_is_left() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let policies = policies();
    charge(&redis.url(), &policies.iter().map(String::as_str).collect::<Vec<_>>());
    for name in ALGORITHMS {
        let policy = format!(
            "{name}=100/d,algorithm={name}{}",
            if name == "leaky-bucket" { ",burst=100" } else { "" }
        );
        let ran = tollgate(&["credit", "=1", "10", "--redis", &redis.url(), "--policy", &policy]);
        if name == "leaky-bucket" {
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
            assert_eq!(ran.stderr, "error: --policy: units of leaky-bucket cannot be given back\n");
            continue;
        }
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
        assert_eq!(row(&ran.stdout, name)[3..6], ["100", "20", "80"], "{}", ran.stdout);
    }
}
