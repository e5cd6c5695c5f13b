//! `tollgate load` against a playground: HTTP/1, HTTP/2, gRPC.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::playground::{Playground, get};
use crate::run::{Ran, command, load};

#[test]
fn the_allowed_count_is_what_the_server_admitted() {
    let playground = Playground::start("api=1000/d,algorithm=fixed-window");
    let url = playground.url("/");
    assert_eq!(load(&[&url, "-n", "300", "-c", "20"]).counts(), (300, 0, 0));
    assert_eq!(playground.remaining(), 700);
    assert_eq!(load(&[&url, "-n", "1500", "-c", "20", "--http2"]).counts(), (700, 800, 0));
    assert_eq!(playground.remaining(), 0);
}

#[test]
fn allowed_and_denied_are_what_the_metrics_of_the_server_count() {
    let options = ["--rule", "api=100/s,burst=50", "--metrics", "127.0.0.1:0"];
    let mut playground = Playground::start_with(&options);
    let (allowed, denied, failed) = load(&[&playground.url("/"), "-n", "3000", "-c", "20"]).counts();
    assert_eq!((allowed + denied, failed), (3_000, 0));
    let metrics = get(playground.metrics(), "/metrics");
    for (outcome, count) in [("allowed", allowed), ("denied", denied)] {
        let line = format!(
            "tollgate_decisions_total{{policy=\"api\",outcome=\"{outcome}\",source=\"store\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[test]
fn each_key_gets_its_own_limit() {
    let playground = Playground::start("user=30/d,algorithm=fixed-window,key=header:x-user");
    let ran = load(&[&playground.url("/"), "-n", "2000", "--keys", "4", "--header", "x-user: user-{key}"]);
    assert_eq!(ran.counts(), (120, 1_880, 0));
    for key in ["1", "2", "3", "4"] {
        assert_eq!(ran.row(key)[0], 30, "{}", ran.stdout);
    }
    let more =
        load(&[&playground.url("/"), "-n", "100", "-H", "x-user: user-{key}", "--distribution", "hot"]);
    assert_eq!(more.counts(), (0, 100, 0), "key 1 is the same user again");
}

#[test]
fn method_body_and_key_of_the_url_are_sent() {
    let playground = Playground::start("api=30/d,algorithm=fixed-window");
    let ran = load(&[&playground.url("/transfer/10"), "-n", "5", "--body", "anything"]);
    assert_eq!(ran.counts(), (3, 2, 0), "each transfer costs 10");
    let playground = Playground::start("path=2/d,algorithm=fixed-window,key=global");
    let url = playground.url("/transfer/{key}");
    let ran = load(&[&url, "-n", "50", "--keys", "2", "--method", "POST", "-c", "1"]);
    assert!(ran.counts().0 < 3, "a transfer of 2 leaves nothing: {}", ran.stdout);
}

#[test]
fn denied_grpc_calls_are_counted_as_denied() {
    let playground = Playground::start("api=40/d,algorithm=fixed-window");
    let url = format!("grpc://{}/helloworld.Greeter/SayHello", playground.address);
    // The message has field 1, the name "ada".
    assert_eq!(load(&[&url, "-n", "100", "--body", "\n\u{3}ada"]).counts(), (40, 60, 0));
    assert_eq!(playground.remaining(), 0);
}

#[test]
fn failures_are_listed_with_their_reason() {
    let playground = Playground::start("api=1000/d");
    let ran = load(&[&playground.url("/none"), "-n", "20"]);
    assert_eq!(ran.counts(), (0, 0, 20));
    assert!(ran.stdout.contains("20 x 404 Not Found"), "{}", ran.stdout);
    assert!(ran.stdout.contains("key 1: at most 0\n"), "{}", ran.stdout);
    let url = format!("grpc://{}/helloworld.Greeter/Unknown", playground.address);
    let ran = load(&[&url, "-n", "5"]);
    assert!(ran.stdout.contains("5 x grpc-status 12"), "{}", ran.stdout);
}

#[test]
fn a_load_ends_after_its_duration() {
    let playground = Playground::start("api=4000000000/s");
    let ran = load(&[&playground.url("/"), "--duration", "200ms"]);
    assert!(ran.counts().0 > 0, "{}", ran.stdout);
    assert_eq!((ran.counts().1, ran.counts().2), (0, 0));
}

#[cfg(unix)]
#[test]
fn an_interrupt_prints_the_summary_of_what_was_sent() {
    let limit = 1_000_000_000;
    let playground = Playground::start(&format!("api={limit}/d,algorithm=fixed-window"));
    let mut command = command(&["load", &playground.url("/"), "--duration", "1h", "-c", "5"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while playground.remaining() == limit {
        sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let (used, allowed) = (limit - playground.remaining(), ran.counts().0);
    // On a slow machine, requests in flight are given up.
    assert!(allowed > 0 && (allowed..=allowed + 5).contains(&used), "{used}: {}", ran.stdout);
}
