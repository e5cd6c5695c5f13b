//! The example of a reqwest client.

use tollgate_examples::testing::program;

use crate::program::start;

#[test]
fn the_reqwest_example_waits_for_its_turn() {
    let server = start("hello", &["127.0.0.1:0"]);
    let output = program("reqwest").arg(format!("http://{}/", server.address())).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let answered: Vec<u64> = said
        .lines()
        .filter_map(|line| line.strip_prefix("200 OK after ")?.strip_suffix(" ms")?.parse().ok())
        .collect();
    let kept_back = said.lines().filter(|line| *line == "not sent: quota exceeded: spaced").count();
    // Five turns are within half a second. If a request starts after the first turn, more are.
    assert!(answered.len() >= 5 && answered.len() + kept_back == 8, "{said}");
    // The clocks are read at different moments, so a turn takes almost 110 ms.
    assert!(answered.iter().zip(0..).all(|(ms, turn)| *ms >= 100 * turn), "{said}");
}

#[test]
fn the_reqwest_example_reports_a_refused_connection() {
    // No server listens on this port.
    let output = program("reqwest").arg("http://127.0.0.1:1/").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("Connect"), "{output:?}");
}
