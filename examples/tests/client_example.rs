//! The example of a client that limits itself.

use tollgate_examples::testing::program;

use crate::program::start;

#[test]
fn the_client_example_waits_for_its_turn() {
    let server = start("hello", &["127.0.0.1:0"]);
    let output = program("client").arg(format!("http://{}/", server.address())).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let sent: Vec<u64> = said
        .lines()
        .filter_map(|line| line.strip_prefix("sent after ")?.strip_suffix(" ms")?.parse().ok())
        .collect();
    let answered = said.lines().filter(|line| *line == "answered 200 OK").count();
    let kept_back = said.lines().filter(|line| line.starts_with("not sent: ")).count();
    // Ten turns are within a second. If the last request starts after some turns, all twelve are.
    assert!(sent.len() >= 10 && answered == sent.len() && answered + kept_back == 12, "{said}");
    // The clocks are read at different moments, so a turn takes almost 110 ms.
    assert!(sent.iter().zip(0..).all(|(ms, turn)| *ms >= 100 * turn), "{said}");
}

#[test]
fn the_client_example_reports_a_refused_connection() {
    // No server listens on this port.
    let output = program("client").arg("http://127.0.0.1:1/").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("Connect"), "{output:?}");
}
