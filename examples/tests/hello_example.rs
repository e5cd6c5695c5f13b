//! The shortest program.

use crate::program::start;

#[test]
fn the_hello_example_limits_its_callers() {
    let server = start("hello", &["127.0.0.1:0"]);
    let answers: Vec<_> = (0..20).map(|_| server.get("/")).collect();
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(answers[0].header("ratelimit-policy"), Some("\"default\";q=20;w=12"));
    let mut more = (0..1_000).map(|_| server.get("/"));
    let refused = more.find(|answer| answer.status != 200).expect("nothing is limited");
    refused.assert_refused_by(&["default"]);
}

#[test]
fn the_readme_shows_the_hello_example() {
    let program = include_str!("../hello/main.rs").split_once("\n\n").expect("a heading").1;
    assert!(include_str!("../../README.md").contains(program), "the README does not show: {program}");
}
