//! `tollgate replay`: decides about the requests of a log again.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Request;
use humantime::{format_rfc3339_micros, format_rfc3339_seconds};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;
use tollgate::config::{Registry, RuleFile};
use tollgate::extract::{PeerAddr, header};
use tollgate::store::{NeverFails, Store};
use tollgate::{Head, Key, ManualClock, MemoryStore, RequestLimiter, Rule, StoreExt as _, Timestamp};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server as TestServer, short_or_long};

use crate::run::{row, shown, tollgate};

/// 2026-05-04T09:30:00Z.
const START_US: u64 = 1_777_887_000_000_000;

/// A folder with a log and a file of rules.
struct Files(TempDir);

impl Files {
    fn new(log: impl AsRef<[u8]>, rules: &str) -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        fs::write(files.path("log"), log).unwrap();
        fs::write(files.path("rules.toml"), rules).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[track_caller]
    fn replayed(&self) -> String {
        shown(&["replay", text(&self.path("log")), "--rules", text(&self.path("rules.toml"))])
    }

    #[track_caller]
    fn complaint(&self) -> String {
        let ran = tollgate(&["replay", text(&self.path("log")), "--rules", text(&self.path("rules.toml"))]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        ran.stderr
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server whose clock stands still until the next request.
struct Server<S = MemoryStore> {
    rules: Vec<Rule>,
    limiter: RequestLimiter<S>,
    clock: ManualClock,
    /// The requests and refusals of each rule and hour.
    truth: BTreeMap<(String, u64), (u64, u64)>,
}

/// What a server decided about a request.
struct Decided {
    allowed: bool,
    /// The name, the key, the cost, and whether it refused.
    checks: Vec<(String, Key, u64, bool)>,
}

const RULES: &str = r#"
[[rule]]
name = "address"
quota = "30/10s burst 40"
by = "ip"

[[rule]]
name = "all"
quota = "1000/min"
by = "global"
algorithm = "fixed-window"

[[rule]]
name = "user"
quota = "120/min"
by = "user | ip"
algorithm = "sliding-log"

[[rule]]
name = "transfers"
quota = "100/min"
by = "user"
cost = "transfer"
algorithm = "sliding-window"
when = { path = "/transfer/*", method = "POST" }
missing-key = "skip"

[[rule]]
name = "daily"
quota = "8000/d"
by = "header:x-user + ip"
algorithm = "sliding-buckets"
cost = 2
missing-key = "skip"
"#;

/// Those of an access log.
const ACCESS_RULES: &str = r#"
[[rule]]
name = "address"
quota = "10/10s burst 20"
by = "ip"

[[rule]]
name = "all"
quota = "2000/min"
by = "global"
algorithm = "fixed-window-aligned"

[[rule]]
name = "user"
quota = "20/min"
by = "basic-user"
algorithm = "sliding-log"
when = { path = "/reports/*" }
missing-key = "skip"

[[rule]]
name = "posts"
quota = "200/min"
by = "method"
algorithm = "sliding-window"
cost = 2
when = { method = "POST" }

[[rule]]
name = "agent"
quota = "60/min"
by = "header:user-agent + global"
algorithm = "sliding-buckets"
when = { header = "referer" }
"#;

fn transfer(head: &Head<'_>) -> u64 {
    head.uri().path().rsplit('/').next().unwrap().parse().unwrap_or(1)
}

impl Server {
    fn new(rules: &str) -> Server {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let store = MemoryStore::builder().clock(&clock).build();
        Server::with(rules, store, clock)
    }
}

impl<S: Store<Error: NeverFails>> Server<S> {
    fn with(rules: &str, store: S, clock: ManualClock) -> Server<S> {
        let registry = Registry::new().key("user", header("x-user")).cost("transfer", transfer);
        let rules = registry.rules(&RuleFile::from_toml(rules).unwrap()).unwrap();
        let limiter = RequestLimiter::new(rules.clone()).store(store);
        Server { rules, limiter, clock, truth: BTreeMap::new() }
    }

    async fn decide(&mut self, time_us: u64, request: &Request<()>) -> Decided {
        self.clock.set(Timestamp::from_micros(time_us));
        let head = Head::from(request);
        let verdict = self.limiter.check(&head).await;
        let refused_by: Vec<String> = match &verdict {
            Ok(_) => Vec::new(),
            Err(denial) => denial.violated().map(str::to_owned).collect(),
        };
        let mut checks = Vec::new();
        for rule in &self.rules {
            let Some(key) = rule.key(&head) else { continue };
            let name = rule.policy().name().to_owned();
            let cost = match &*name {
                "transfers" => transfer(&head),
                "daily" => 2,
                _ => 1,
            };
            let refuses = refused_by.contains(&name);
            let hour = self.truth.entry((name.clone(), time_us / 3_600_000_000)).or_default();
            *hour = (hour.0 + 1, hour.1 + u64::from(refuses));
            checks.push((name, key, cost, refuses));
        }
        Decided { allowed: verdict.is_ok(), checks }
    }

    /// Compares the table of a replay with the truth. Refusals may differ by a part of `1 / most`.
    #[track_caller]
    fn check(&self, table: &str, most: u64) {
        let hours: HashMap<(String, String), [u64; 2]> = (table.lines().map(|line| cells(line)))
            .filter(|cells| cells.len() == 5)
            .filter_map(|cells| {
                let number = |at: usize| cells[at].replace(',', "").parse::<u64>().ok();
                Some(((cells[0].to_owned(), cells[1].to_owned()), [number(2)?, number(3)?]))
            })
            .collect();
        for ((rule, hour), (requests, refused)) in &self.truth {
            let time = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(hour * 3_600)).to_string();
            let hour = time[..16].replace('T', " ");
            let [seen, seen_refused] = hours[&(rule.clone(), hour.clone())];
            assert_eq!(seen, *requests, "{rule} {hour}");
            assert!(
                seen_refused.abs_diff(*refused) * most <= *refused,
                "{rule} {hour}: {seen_refused} of {refused}"
            );
        }
        assert_eq!(hours.len(), self.truth.len() + 1, "{table}");
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Makes requests, sometimes several of one instant, with the times between them.
struct Traffic {
    random: SmallRng,
    time_us: u64,
}

impl Traffic {
    fn new() -> Traffic {
        Traffic { random: SmallRng::seed_from_u64(7), time_us: START_US }
    }

    fn next(&mut self) -> (u64, Request<()>) {
        if self.random.random_bool(0.8) {
            self.time_us += self.random.random_range(1..100_000_u64);
        }
        // Few of them send most.
        let user = self.random.random_range(0..30_u32) * self.random.random_range(0..30_u32) / 30;
        let path = match self.random.random_range(0..4_u32) {
            0 => format!("/transfer/{}", self.random.random_range(1..40_u32)),
            _ => "/".to_owned(),
        };
        let method = if self.random.random_bool(0.5) { "POST" } else { "GET" };
        let address: SocketAddr = format!("192.0.2.{}:1", user / 2).parse().unwrap();
        let request = Request::builder().method(method).uri(path).extension(PeerAddr(address));
        let request = if user % 5 == 0 { request } else { request.header("x-user", format!("user {user}")) };
        (self.time_us, request.body(()).unwrap())
    }
}

fn peer(request: &Request<()>) -> String {
    request.extensions().get::<PeerAddr>().unwrap().0.ip().to_string()
}

fn json(time_us: u64, version: u64, request: &Request<()>, decided: &Decided) -> String {
    let check = |(rule, key, cost, denied): &(String, Key, u64, bool)| {
        let digest: u128 = key.as_encoded().iter().fold(7, |hash: u128, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_01b3_0000_0000_0000_0193)
        });
        format!(r#"{{"rule":"{rule}","key":"{digest:032x}","cost":{cost},"denied":{denied}}}"#)
    };
    let checks: Vec<String> = decided.checks.iter().map(check).collect();
    format!(
        r#"{{"time":"{}","version":{version},"allowed":{},"method":"{}","path":"{}","peer":"{}","checks":[{}],"of":"a later version"}}"#,
        format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(time_us)),
        decided.allowed,
        request.method(),
        request.uri(),
        peer(request),
        checks.join(","),
    )
}

/// The lines of so many requests, which a server with these rules decided.
async fn json_lines<S: Store<Error: NeverFails>>(server: &mut Server<S>, count: usize) -> Vec<String> {
    let mut traffic = Traffic::new();
    let mut lines = Vec::new();
    for _ in 0..count {
        let (time, request) = traffic.next();
        let decided = server.decide(time, &request).await;
        lines.push(json(time, 1, &request, &decided));
    }
    lines
}

#[tokio::test]
async fn a_log_in_json_gets_the_verdicts_that_it_has() {
    let mut server = Server::new(RULES);
    let (count, text) = short_or_long((20_000, "20,000"), (200_000, "200,000"));
    let mut lines = json_lines(&mut server, count).await;
    // Requests that run at the same time end in another order than they were decided in.
    let mut random = SmallRng::seed_from_u64(8);
    for at in 0..lines.len() {
        let other = (at + random.random_range(0..50_usize)).min(lines.len() - 1);
        lines.swap(at, other);
    }
    let shown = Files::new(lines.join("\n"), RULES).replayed();
    assert!(shown.contains(&format!("{text} verdicts compared, 0 differ")), "{shown}");
    server.check(&shown, 100);
    // A short log is not long enough for the quota of a day.
    let refusing = short_or_long(
        &["address", "all", "user", "transfers"][..],
        &["address", "all", "user", "transfers", "daily"],
    );
    for rule in refusing {
        let refused: u64 =
            server.truth.iter().filter(|(of, _)| of.0 == *rule).map(|(_, counts)| counts.1).sum();
        assert!(refused > 100, "{rule} refused {refused}, which shows little");
    }
    // Its own column agrees.
    let all = row(&shown, "all rules");
    assert_eq!((all[1], all[2], all[3]), ("in all", text, all[4]), "{shown}");
}

#[tokio::test]
async fn a_log_of_decisions_in_redis_gets_the_verdicts_that_it_has() {
    let redis = TestServer::start(Kind::Redis8_2).unwrap();
    let clock = ManualClock::new(Timestamp::EPOCH);
    let store = RedisStore::builder(&redis.url()).clock(&clock).connect().await.unwrap().fail_closed();
    let (count, text) = short_or_long((5_000, "5,000"), (20_000, "20,000"));
    let lines = json_lines(&mut Server::with(RULES, store, clock), count).await;
    let shown = Files::new(lines.join("\n"), RULES).replayed();
    assert!(shown.contains(&format!("{text} verdicts compared, 0 differ")), "{shown}");
    assert!(row(&shown, "address")[3] != "0", "nothing was refused: {shown}");
}

/// A request of an access log: an address, user, request, referer and user agent.
fn visit(random: &mut SmallRng) -> (String, &'static str, &'static str, &'static str, &'static str) {
    let address = format!("198.51.100.{}", random.random_range(0..250_u32));
    let agent = "Mozilla/5.0 (X11; \\\"Linux\\\")";
    match random.random_range(0..6_u32) {
        // One address, one user, the one crawler and all posts exceed their quotas.
        0 => ("192.0.2.1".to_owned(), "-", "GET / HTTP/1.1", "-", agent),
        1 => (address, "ada", "GET /reports/1 HTTP/1.1", "-", agent),
        2 => (address, "-", "GET /?a=%20 HTTP/1.0", "/", "crawler"),
        3 => (address, "bob", "POST / HTTP/2.0", "-", agent),
        _ => (address, "eve", "GET /index.html HTTP/1.1", "-", agent),
    }
}

#[tokio::test]
async fn a_log_with_whole_seconds_is_within_one_percent_of_the_truth() {
    let (mut server, mut traffic, mut log) = (Server::new(ACCESS_RULES), Traffic::new(), String::new());
    for _ in 0..100_000 {
        let (time, _) = traffic.next();
        let (address, user, line, referer, agent) = visit(&mut traffic.random);
        let peer = PeerAddr(SocketAddr::new(address.parse().unwrap(), 1));
        let (method, uri) = (line.split(' ').next().unwrap(), line.split(' ').nth(1).unwrap());
        let mut request =
            Request::builder().method(method).uri(uri).extension(peer).header("user-agent", agent);
        if user != "-" {
            request = request.header(
                "authorization",
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:secret"))),
            );
        }
        if referer != "-" {
            request = request.header("referer", referer);
        }
        server.decide(time, &request.body(()).unwrap()).await;
        let local = UNIX_EPOCH + Duration::from_micros(time + 19_800_000_000);
        let local = format_rfc3339_seconds(local).to_string();
        let (day, clock) = (&local[8..10], &local[11..19]);
        writeln!(
            log,
            r#"{address} - {user} [{day}/May/2026:{clock} +0530] "{line}" 200 - "{referer}" "{agent}""#
        )
        .unwrap();
    }
    let shown = Files::new(log, ACCESS_RULES).replayed();
    assert!(!shown.contains("skipped"), "{shown}");
    server.check(&shown, 100);
}

const API: &str = r#"
[[rule]]
name = "api"
quota = "2/h"
by = "ip"
algorithm = "fixed-window"
"#;

/// A line of the log of this rule, at a second after 09:30, with the text of its checks' values.
fn api(second: u32, version: u32, allowed: bool, check: &str) -> String {
    format!(
        r#"{{"time":"2026-05-04T09:{:02}:{:02}.000000Z","version":{version},"allowed":{allowed},"method":"GET","path":"/","peer":"192.0.2.1","checks":[{check}]}}"#,
        30 + second / 60,
        second % 60,
    )
}

fn check(rule: &str, key: &str, cost: u64, denied: bool) -> String {
    format!(r#"{{"rule":"{rule}","key":"{key}","cost":{cost},"denied":{denied}}}"#)
}

#[test]
fn verdicts_that_differ_are_listed_with_their_reasons() {
    let of = |key, denied| check("api", key, 1, denied);
    let log = [
        // Used before the log began.
        api(0, 2, false, &of("a", true)),
        api(1, 2, false, &of("a", true)),
        // Allowed three times: the limit was another one.
        api(2, 2, true, &of("b", false)),
        api(2, 2, true, &of("b", false)),
        api(2, 2, true, &of("b", false)),
        api(3, 1, false, &of("c", true)),
        // No difference: of one instant, any two may pass.
        api(4, 2, false, &of("d", true)),
        api(4, 2, true, &of("d", false)),
        api(4, 2, true, &of("d", false)),
        // Half a millisecond too early.
        api(5, 2, true, &check("one", "e", 1, false)),
        api(5, 2, true, &check("one", "e", 1, false)).replace(":05.000000", ":05.999500"),
    ];
    let rules = format!("{API}\n[[rule]]\nname = \"one\"\nquota = \"1/s\"\nby = \"global\"\n");
    let shown = Files::new(log.join("\n"), &rules).replayed();
    let (tables, differences) =
        shown.split_once("11 verdicts compared, 5 differ\n\n").unwrap_or_else(|| panic!("{shown}"));
    let expected = "\
reason                                           verdicts
at its limit, where inexact times decide                1
its key has differed before                             1
its key may have been used before the log began         1
other rules decided, or the log lacks requests          1
version 1 of the rules decided                          1

line  time                         in the log    now           reason
   1  2026-05-04T09:30:00.000000Z  refused: api  allowed       its key may have been used before the log began
   2  2026-05-04T09:30:01.000000Z  refused: api  allowed       its key has differed before
   5  2026-05-04T09:30:02.000000Z  allowed       refused: api  other rules decided, or the log lacks requests
   6  2026-05-04T09:30:03.000000Z  refused: api  allowed       version 1 of the rules decided
  11  2026-05-04T09:30:05.999500Z  allowed       refused: one  at its limit, where inexact times decide
";
    assert_eq!(differences, expected);
    let expected = "\
rule       hour (UTC)        requests  refused  in the log
api        2026-05-04 09:00         9        2           4
one        2026-05-04 09:00         2        1           0
all rules  in all                  11        3           4

rule  key  refused
api   =b         1
api   =d         1
one   =e         1

";
    assert_eq!(tables, expected);
}

#[test]
fn rules_that_need_more_than_the_log_has_are_named_and_skipped() {
    let rules = r#"
[[rule]]
name = "logged"
quota = "1/h"
by = "user"
cost = "by-size"
when = { path = "/", header = "x-beta" }

[[rule]]
name = "method"
quota = "100/h"
by = "ip + method"
exempt = ["10.0.0.0/8", "cors-preflight"]

[[rule]]
name = "user"
quota = "1/h"
by = "user | ip"

[[rule]]
name = "agent"
quota = "1/h"
by = "header:user-agent"

[[rule]]
name = "costs"
quota = "1/h"
by = "ip"
cost = "by-size"

[[rule]]
name = "beta"
quota = "1/h"
by = "ip"
when = { header = "x-beta" }

[[rule]]
name = "plans"
quota = "1/h"
by = "ip"
tiers = { by = "plan", quotas = { pro = "2/h" } }

[[rule]]
name = "office"
quota = "1/h"
by = "ip"
exempt = "office"

[[rule]]
name = "slots"
in-flight = 2
by = "ip"

[[rule]]
name = "blocks"
quota = "1/h"
by = "ip"
block = { after = 2, for = "1h" }
"#;
    let of = |denied| check("logged", "a", 1, denied);
    let log = [
        api(0, 1, true, &of(false)),
        api(1, 1, false, &format!("{},{}", of(false), check("slots", "a", 1, true))),
        api(2, 1, false, ""),
        api(3, 1, false, &of(true)),
    ];
    let shown = Files::new(log.join("\n"), rules).replayed();
    let notes: Vec<&str> = shown.lines().take_while(|line| !line.starts_with("rule  ")).collect();
    assert_eq!(
        notes,
        [
            r#"rule "user" is skipped: the log lacks what by = "user | ip" needs"#,
            r#"rule "agent" is skipped: the log lacks what by = "header:user-agent" needs"#,
            r#"rule "costs" is skipped: the log lacks what cost = "by-size" needs"#,
            r#"rule "beta" is skipped: the log lacks what when = {"header":"x-beta"} needs"#,
            r#"rule "plans" is skipped: the log lacks what tiers = {"by":"plan","quotas":{"pro":"2/h"}} needs"#,
            r#"rule "office" is skipped: the log lacks what exempt = "office" needs"#,
            r#"rule "slots" is skipped: the log lacks what in-flight = 2 needs"#,
            r#"rule "blocks" is skipped: blocks are not replayed: remove its block to replay the rest"#,
            "2 requests are left out: in the log, a skipped rule or none refused them",
        ]
    );
    assert!(shown.contains("2 verdicts compared, 0 differ\n"), "{shown}");
    assert_eq!(row(&shown, "method"), ["method", "2026-05-04 09:00", "2", "0", "0"]);

    // Without checks, each rule is one that the log does not know.
    let none = Files::new(api(0, 1, true, ""), &rules[..rules.find("[[rule]]\nname = \"method\"").unwrap()]);
    let complaint = none.complaint();
    assert!(
        complaint.ends_with("rule \"logged\" is skipped: the log lacks what by = \"user\" needs\n"),
        "{complaint}"
    );
}

#[test]
fn a_number_for_the_cost_replaces_that_of_the_log() {
    let line = |second| api(second, 1, true, &check("api", "a", 1, false));
    let log = [line(0), line(1)].join("\n");
    let now = |rules: &str| row(&Files::new(&log, rules).replayed(), "all rules")[3].to_owned();
    assert_eq!((now(API), now(&format!("{API}cost = 2"))), ("0".to_owned(), "1".to_owned()));
}

#[test]
fn lines_that_cannot_be_read_are_counted() {
    let good = api(0, 1, true, &check("api", "a", u64::MAX, false));
    let mut log = Vec::new();
    for line in [
        "\u{0}\u{1}",
        "{",
        "{}",
        &good.replace("09:30:00", "09:61:00"),
        &good.replace("2026", "2200"),
        &good.replace("2026", "1026"),
        &good.replace("192.0.2.1", "localhost"),
        &good.replace("\"/\"", "\"a b\""),
        &good.replace("GET", ""),
        &good.replace(&u64::MAX.to_string(), "18446744073709551616"),
        &good.replace(&u64::MAX.to_string(), "-1"),
        &"[".repeat(50_000),
        &format!("{}{}", good, "x".repeat(1 << 20)),
        &good,
        "",
        &good.replace("}]", ",\"more\":{\"a\":[]}}]"),
    ] {
        log.extend_from_slice(line.as_bytes());
        log.extend_from_slice(b"\xff\xfe\r\n".get(if line == "{" { 0.. } else { 2.. }).unwrap());
    }
    log.extend_from_slice(&good.as_bytes()[..good.len() - 1]);
    let shown = Files::new(&log, API).replayed();
    assert!(shown.starts_with("15 lines cannot be read, first line 1: expected HOST"), "{shown}");
    assert!(shown.contains("2 verdicts compared, 2 differ"), "{shown}");
}

#[test]
fn mistakes_are_one_error_line() {
    let good = api(0, 1, true, &check("api", "a", 1, false));
    let complaint = |log: &str, rules: &str| Files::new(log, rules).complaint();
    assert!(complaint("", API).ends_with("log: the log is empty\n"));
    assert!(complaint("\n\n", API).contains("log: line 1: expected HOST"));
    assert!(complaint("\u{1b}[31m\n", API).contains("log: line 1: expected HOST - USER [TIME]"));
    let without_quota = complaint(&good, "[[rule]]\nname = \"api\"\nby = \"ip\"");
    assert!(without_quota.contains("rules.toml: line 1, rule \"api\", quota: missing"), "{without_quota}");
    let files = Files::new(&good, API);
    fs::remove_file(files.path("rules.toml")).unwrap();
    assert!(files.complaint().contains("--rules: "));
    fs::remove_file(files.path("log")).unwrap();
    fs::create_dir(files.path("log")).unwrap();
    fs::write(files.path("rules.toml"), API).unwrap();
    assert!(files.complaint().contains("not a regular file"));
    fs::remove_dir(files.path("log")).unwrap();
    assert!(files.complaint().contains("log: No such file"));
    let ran = tollgate(&["replay", "log"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("--rules <FILE>"), "{}", ran.stderr);
}

#[test]
fn a_byte_order_mark_is_skipped_and_utf_16_is_named() {
    let line = api(0, 1, true, &check("api", "a", 1, false));
    let access = "192.0.2.1 - - [04/May/2026:09:30:00 +0000] \"GET / HTTP/1.1\" 200 12";
    for line in [&line, access] {
        let shown = Files::new(format!("\u{feff}{line}\n{line}\n"), API).replayed();
        assert!(!shown.contains("cannot be read"), "{shown}");
        assert_eq!(row(&shown, "all rules")[2], "2", "{shown}");
        let utf_16: Vec<u8> = format!("\u{feff}{line}\n").encode_utf16().flat_map(u16::to_le_bytes).collect();
        let complaint = Files::new(utf_16, API).complaint();
        assert!(complaint.ends_with("line 1: the log is UTF-16: save it as UTF-8\n"), "{complaint}");
    }
}

#[test]
fn decisions_without_a_line_are_named() {
    let line = |second| api(second, 1, true, &check("api", "a", 1, false));
    let late = |dropped: u64| line(1).replace("\"version\"", &format!("\"dropped\":{dropped},\"version\""));
    let shown = Files::new([line(0), late(2), late(40)].join("\n"), API).replayed();
    assert!(shown.starts_with("42 decisions have no line: the log did not take them in time\n"), "{shown}");
}
