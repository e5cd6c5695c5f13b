//! `/dashboard`, in a real browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_test_servers::{Kind, Server as Redis};

use crate::browser::Page;
use crate::server::{Server, wait_until};

/// Opens the page and waits for its first event.
pub(crate) fn open(server: &Server) -> Page {
    let mut page = Page::open(&format!("http://{}/dashboard", server.address()));
    page.wait_for("document.querySelector('article')");
    page
}

/// The total of an outcome in the table of a policy, as a JavaScript expression.
fn total(policy: &str, outcome: &str) -> String {
    format!(
        "document.querySelector('[data-policy={policy:?}] [data-outcome={outcome:?}]').cells[2].textContent"
    )
}

#[test]
fn a_burst_shows_what_was_allowed_and_refused() {
    let server = Server::with_rules(&["few=3/d", "many=100/d"]);
    let mut page = open(&server);
    page.click("[data-requests='10']");
    page.wait_for("document.querySelector('#result').textContent.startsWith('Sent')");
    let result = page.text("#result");
    assert!(result.starts_with("Sent 10: 3 allowed, 7 refused with 429. Retry-After: "), "{result}");
    assert_eq!(page.eval("document.querySelectorAll('#burst .allowed').length"), 3);
    assert_eq!(page.eval("document.querySelectorAll('#burst .refused').length"), 7);
    let label = page.eval("document.querySelector('#burst').getAttribute('aria-label')");
    assert_eq!(label, "Sent 10: 3 allowed, 7 refused with 429.");

    // Exactly these: neither the page, its events nor its icon is a request that is limited.
    page.wait_for(&format!("{} === '7' && {} === '3'", total("few", "denied"), total("few", "allowed")));
    page.wait_for(&format!("{} === '7'", total("many", "not-charged")));
    let chart = "document.querySelector('[data-policy=few] .chart svg')";
    page.wait_for(&format!("{chart}.getAttribute('aria-label').endsWith(': 3 allowed, 7 refused')"));
    assert_ne!(page.eval(&format!("{chart}.querySelector('.denied').getBoundingClientRect().height")), 0);
    page.wait_for("document.querySelector('#denied').textContent === '@127.0.0.1few7'");
    page.wait_for("document.querySelector('[data-source=store]').textContent.endsWith('100 %20')");
    assert_eq!(page.logged().len(), 0, "{:?}", page.logged());
}

#[test]
fn a_policy_shows_the_units_that_were_reserved_settled_and_forgiven() {
    let server = Server::with_rules(&["tokens=100/d", "api=100/d"]);
    let mut page = open(&server);
    let units = |policy: &str| format!("[data-policy={policy:?}] .units");
    assert_eq!(page.eval(&format!("document.querySelector({:?}).hidden", units("tokens"))), true);
    let mut connection = server.connect();
    for (path, expected) in [
        ("/chat/50/37", "Units: 50 reserved, 37 settled, 0 forgiven"),
        ("/chat/10/1000", "Units: 60 reserved, 200 settled, 837 forgiven"),
    ] {
        assert_eq!(connection.request("POST", path, &[]).status, 200);
        page.wait_for(&format!("document.querySelector({:?}).textContent === {expected:?}", units("tokens")));
    }
    let hidden = |policy: &str| format!("document.querySelector({:?}).hidden", units(policy));
    assert_eq!((page.eval(&hidden("tokens")), page.eval(&hidden("api"))), (false.into(), true.into()));
    // Two requests under two rules: the end of a charge is no decision.
    assert!(page.text("[data-source=store]").ends_with("100 %4"), "{}", page.text("#by-source"));
    assert_eq!(page.logged().len(), 0, "{:?}", page.logged());
}

#[test]
fn a_limit_of_requests_in_flight_shows_the_slots_in_use_of_each_key() {
    let server = Server::playground(&["--in-flight", "exports=3,key=header:x-user", "--rule", "api=100/d"]);
    let mut page = open(&server);
    let slots = |policy: &str| format!("document.querySelector('[data-policy={policy}] .slots')");
    let text = |expected: &str| format!("{}.tBodies[0]?.textContent === {expected:?}", slots("exports"));
    page.wait_for(&text("none"));
    assert_eq!(page.eval(&format!("{}.hidden", slots("api"))), true);
    let slow = |user: &str| {
        let mut connection = TcpStream::connect(server.address()).unwrap();
        let head = format!("GET /slow/60000 HTTP/1.1\r\nhost: localhost\r\nx-user: {user}\r\n\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        connection
    };
    let connections = [slow("ada"), slow("bob"), slow("bob")];
    page.wait_for(&text("=bob2 of 3=ada1 of 3"));
    assert_eq!(page.eval(&format!("{}.querySelectorAll('rect').length", slots("exports"))), 3);
    drop(connections);
    page.wait_for(&text("none"));
    // Three requests under two rules: the end of a slot is no decision.
    assert!(page.text("[data-source=store]").ends_with("100 %6"), "{}", page.text("#by-source"));
    assert_eq!(page.logged().len(), 0, "{:?}", page.logged());
}

#[test]
fn the_slots_of_all_servers_are_counted() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let options = ["--store", &url, "--timeout", "30s", "--in-flight", "exports=3,key=header:x-user"];
    let (one, other) = (Server::playground(&options), Server::playground(&options));
    let mut pages = [open(&one), open(&other)];
    let hold = |server: &Server| {
        let mut connection = TcpStream::connect(server.address()).unwrap();
        connection.write_all(b"GET /slow/60000 HTTP/1.1\r\nhost: localhost\r\nx-user: ada\r\n\r\n").unwrap();
        connection
    };
    let mut clients = vec![hold(&one), hold(&other), hold(&other)];
    for expected in ["=ada3 of 3", "=ada2 of 3", "=ada1 of 3", "none"] {
        for page in &mut pages {
            page.wait_for(&format!(
                "document.querySelector('.slots').tBodies[0]?.textContent === {expected:?}"
            ));
        }
        clients.pop();
    }
}

/// Sends requests until one is answered by a block.
fn until_blocked(server: &Server, user: &str) {
    let mut connection = server.connect();
    wait_until(|| {
        let answer = connection.request("GET", "/", &[("x-user", user)]);
        answer.body.contains("abnormal-usage-detected")
    });
}

#[test]
fn blocked_keys_are_shown_with_the_time_that_remains() {
    let rules = ["--rule", "api=2/d,key=header:x-user", "--block", "api=3/15m"];
    let short = ["--rule", "short=2/d,key=header:x-user", "--block", "short=3/6s"];
    let (server, shortly) = (Server::playground(&rules), Server::playground(&short));
    let mut page = open(&server);
    let rows = "document.querySelector('#blocked')";
    page.wait_for(&format!("{rows}.textContent === 'none'"));
    assert!(page.text("article p").ends_with("; after 3 denials within 1 day blocked for 15 minutes"));
    until_blocked(&server, "ada");
    page.wait_for(&format!("/^=adaapi1[45] min/.test({rows}.textContent)"));
    until_blocked(&server, "<b>bob</b>");
    page.wait_for(&format!("/^=<b>bob<\\/b>api1[45] min.*=adaapi1[45] min/.test({rows}.textContent)"));
    page.wait_for(&format!("/14 min \\d+ s/.test({rows}.textContent)"));
    page.wait_for(&format!("{} === '6' && {} >= '2'", total("api", "denied"), total("api", "blocked")));
    assert_eq!(page.logged().len(), 0, "{:?}", page.logged());

    let mut page = open(&shortly);
    until_blocked(&shortly, "ada");
    page.wait_for(&format!("{rows}.textContent.startsWith('=adashort')"));
    page.wait_for(&format!("{rows}.textContent === 'none'"));

    let mut page = open(&Server::with_rules(&["api=2/d"]));
    assert_eq!(page.eval("document.querySelector('#blocks').hidden"), true);
}

#[test]
fn the_keyboard_sends_bursts_with_the_keys_that_the_rules_need() {
    let server = Server::with_rules(&["api=1/d,key=header:x-api-key+cookie:session"]);
    let mut page = open(&server);
    for (requests, key, code, text, result) in [
        ("1", "Enter", 13, "\r", "Sent 1: 1 allowed, 0 refused."),
        ("10", " ", 32, " ", "Sent 10: 0 allowed, 10 refused with 429."),
    ] {
        page.press("Tab", 9, "");
        let focused = "document.querySelector('button:focus-visible')?.dataset.requests";
        assert_eq!(page.eval(focused), requests);
        assert_eq!(page.eval("getComputedStyle(document.activeElement).outlineWidth"), "3px");
        page.press(key, code, text);
        page.wait_for(&format!("document.querySelector('#result').textContent.startsWith({result:?})"));
        assert_eq!(page.eval(focused), requests, "the focus stays");
    }
    assert_eq!(page.eval("document.querySelector('#result').ariaLive"), "polite");
}

#[test]
fn keys_and_names_are_shown_as_text() {
    let rule = "<i>few</i>=1/d,key=header:x-user";
    let server = Server::with_rules(&[rule]);
    let mut connection = server.connect();
    let (long, longer) = ("k".repeat(120), "k".repeat(10_000));
    let image = "<img src=x onerror=document.title='broken'>";
    for key in [image, "</td><script>alert(1)</script>", &long, &longer] {
        (0..3).for_each(|_| _ = connection.request("GET", "/", &[("x-user", key)]));
    }
    let mut page = open(&server);
    page.wait_for("document.querySelectorAll('#denied tr').length === 4");
    let keys = page.text("#denied");
    assert!(keys.contains("=<img%20src=x%20onerror=") && keys.contains("<script>"), "{keys}");
    // A key of more than 128 bytes is counted by its digest.
    assert!(keys.contains("kkk…") && keys.contains('~') && keys.len() < 500, "{keys}");
    assert_eq!(page.text("h3"), "<i>few</i>");
    assert_eq!(page.eval("document.querySelectorAll('img, i, td script').length"), 0);
    assert_eq!(page.text("title"), "tollgate playground");
    assert_eq!(page.logged().len(), 0, "{:?}", page.logged());
    for (width, scheme) in [(320, "light"), (320, "dark")] {
        page.emulate(width, scheme);
        assert_eq!(page.eval("document.documentElement.scrollWidth"), width, "it scrolls to the side");
    }
    let [dark, light] = ["dark", "light"].map(|scheme| {
        page.emulate(320, scheme);
        page.eval("getComputedStyle(document.body).backgroundColor")
    });
    assert_ne!(dark, light);
}

#[test]
fn an_outage_shows_an_open_circuit_and_the_fallback() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    // A slow answer is no outage.
    let wrappers = ["--timeout", "30s", "--on-failure", "fallback", "--breaker", "2/60s"];
    let rule = ["--rule", "api=100/d,key=global"];
    let server = Server::playground(&[&["--store", &redis.url()][..], &wrappers, &rule].concat());
    let mut page = open(&server);
    page.click("[data-requests='10']");
    page.wait_for("document.querySelector('[data-source=store]')");
    page.wait_for("document.querySelector('#latency').textContent.includes('(p99)')");
    assert_eq!(page.text("#circuit"), "closed, requests reach the store");
    redis.kill();
    page.click("[data-requests='10']");
    page.wait_for("document.querySelector('[data-source=fallback]')");
    page.wait_for("document.querySelector('#circuit').textContent === 'open, the store is not asked'");
    page.wait_for("document.querySelector('#result').textContent.startsWith('Sent 10: 10 allowed')");
}

#[test]
fn an_outage_shows_what_the_failure_policy_decided() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let rule = ["--timeout", "30s", "--on-failure", "open", "--rule", "api=100/d,key=global"];
    let server = Server::playground(&[&["--store", &redis.url()][..], &rule].concat());
    let mut page = open(&server);
    redis.kill();
    page.click("[data-requests='10']");
    page.wait_for("document.querySelector('[data-source=failure-policy]')");
    let row = page.text("[data-source=failure-policy]");
    assert!(row.starts_with("failure policy, without the store"), "{row}");
}

/// Reads the first event.
fn first_event(connection: &mut TcpStream) -> Value {
    let mut answer = String::new();
    while !answer.contains("\n\n\r\n") {
        let mut buffer = [0; 4096];
        let read = connection.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "{answer}");
        answer.push_str(str::from_utf8(&buffer[..read]).unwrap());
    }
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\ncache-control: no-store\r\n"), "{answer}");
    let data = answer.split_once("data: ").unwrap().1;
    serde_json::from_str(data.split_once('\n').unwrap().0).unwrap()
}

/// Reads events until one fulfils a condition.
pub(crate) fn event_with(server: &Server, condition: impl Fn(&Value) -> bool) -> Value {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    connection.write_all(b"GET /dashboard/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut last = Value::Null;
    for line in BufReader::new(connection).lines().map(Result::unwrap).take(1_000) {
        if let Some(data) = line.strip_prefix("data: ") {
            last = serde_json::from_str(data).unwrap();
            if condition(&last) {
                return last;
            }
        }
    }
    panic!("no such event, the last is {last}");
}

#[test]
fn events_list_the_latest_blocked_keys_of_rules_that_block() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let rules = ["--rule", "api=1/d,key=header:x-user", "--rule", "all=1000/d,key=global"];
    let options = [&rules[..], &["--block", "api=2/1h", "--missing-key", "share"]].concat();
    let url = redis.url();
    let in_redis = [&["--store", &url, "--timeout", "30s"], &options[..]].concat();
    for options in [&options, &in_redis] {
        let (server, other) = (Server::playground(options), Server::playground(options));
        assert_eq!(first_blocked(&server), json!([]));
        for n in 0..10 {
            until_blocked(&server, &format!("user {n}"));
        }
        let event = event_with(&server, |event| event["blocked"].as_array().unwrap().len() == 8);
        let blocked = event["blocked"].as_array().unwrap();
        for (row, n) in blocked.iter().zip((2..10).rev()) {
            assert_eq!((&row["policy"], &row["key"]), (&json!("api"), &json!(format!("=user%20{n}"))));
            assert!((3_500..=3_600).contains(&row["seconds"].as_u64().unwrap()), "{row}");
        }
        // The keys that a server has not denied are not known to it.
        assert_eq!(first_blocked(&other), json!([]));
        if options.contains(&"--store") {
            assert_eq!(other.get_with("/", &[("x-user", "user 5")]).status, 429);
            let event = event_with(&other, |event| event["blocked"] != json!([]));
            assert_eq!(event["blocked"][0]["key"], "=user%205");
        }
        (0..5).for_each(|_| _ = other.get("/"));
        let event = event_with(&other, |event| event["blocked"] != json!([]));
        assert_eq!(event["blocked"][0]["policy"], "api", "requests without a key share one");
    }
    let server = Server::with_rules(&["api=1/d"]);
    assert_eq!(first_blocked(&server), Value::Null);
}

fn first_blocked(server: &Server) -> Value {
    event_with(server, |_| true)["blocked"].take()
}

#[test]
fn many_pages_are_served_while_requests_are_refused() {
    let server = Server::with_rules(&["api=2/d"]);
    for status in [200, 200, 429] {
        assert_eq!(server.get("/").status, status);
    }
    let page = server.get("/dashboard");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    let mut pages: Vec<_> = (0..200)
        .map(|_| {
            let mut connection = TcpStream::connect(server.address()).unwrap();
            connection.write_all(b"GET /dashboard/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            connection
        })
        .collect();
    for page in &mut pages {
        let event = first_event(page);
        let outcomes = &event["policies"][0]["outcomes"];
        assert_eq!((&outcomes["allowed"]["total"], &outcomes["denied"]["total"]), (&2.into(), &1.into()));
        assert_eq!(outcomes["denied"]["seconds"].as_array().unwrap().len(), 60);
    }
    // None of these pages reads any more.
    assert_eq!(server.get("/").status, 429);
}

/// Sends a request with these lines, and returns the status and the text of the answer.
fn answer_to(server: &Server, lines: &str) -> (String, String) {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    connection.write_all(format!("{lines}connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    // Events do not end: the head of their answer is enough.
    while !String::from_utf8_lossy(&answer).contains("\r\n\r\n") {
        let read = connection.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "an answer to {lines:?}");
        answer.extend_from_slice(&buffer[..read]);
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer[9..12].to_owned(), answer)
}

/// DNS rebinding: a page of another name, which resolves to this server.
#[test]
fn only_loopback_and_given_hosts_can_read_the_page_and_its_events() {
    let server = Server::playground(&["--host", "demo.example", "--host", "2001:db8::1"]);
    let port = server.address().port();
    for path in ["/dashboard", "/dashboard/events"] {
        let to = |host: &str| answer_to(&server, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n"));
        for host in ["localhost", "127.0.0.1", "[::1]", "DEMO.example", "[2001:db8::1]"] {
            for host in [host.to_owned(), format!("{host}:{port}")] {
                assert_eq!(to(&host).0, "200", "{path} of {host}");
            }
        }
        for host in ["evil.example", "localhost.evil.example", "demo.example.evil.example", "192.0.2.1", ""] {
            for host in [host.to_owned(), format!("{host}:{port}")] {
                let (status, text) = to(&host);
                // An authority without a host is refused before.
                assert!(
                    status == "421" || (host.starts_with(':') && status == "400"),
                    "{path} of {host}: {text}"
                );
                assert!(!text.contains("api"), "{text}");
            }
        }
        let lines = format!("GET http://evil.example{path} HTTP/1.1\r\nhost: localhost\r\n");
        assert_eq!(answer_to(&server, &lines).0, "421");
        assert_eq!(answer_to(&server, &format!("GET {path} HTTP/1.0\r\n")).0, "421", "no host");
        let (status, text) = answer_to(&server, &format!("GET {path} HTTP/1.1\r\nhost: evil.example\r\n"));
        assert!(status == "421" && text.contains("--host"), "{text}");
    }
    // A limited route is for any host.
    assert_eq!(answer_to(&server, "GET / HTTP/1.1\r\nhost: evil.example\r\n").0, "200");
}
