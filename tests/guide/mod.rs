//! What the guide says: its examples do it, its links lead to files, and the pages for operators
//! match the store. That the examples compile is a doctest of `support/guide.rs`.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod algorithms;
mod before_a_rule_bites;
mod charges;
mod documents;
mod from_others;
mod grpc;
mod in_flight;
mod keys;
mod layers;
mod outages;
mod recipes;
mod rules_from_a_file;
mod testing;
mod tiers;
mod writing_a_store;

use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use tollgate::extract::PeerAddr;
use tower::ServiceExt;

fn guide() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/tollgate/src/guide")
}

/// Fails if a chapter shows other code than a test file has. Imports and layout may differ.
///
/// `marks` are parts of code blocks: one for each block that the test file has.
fn shows(chapter: &str, test_file: &str, marks: &[&str]) {
    let text = std::fs::read_to_string(guide().join(chapter)).unwrap();
    let blocks: Vec<_> = text.split("\n```").skip(1).step_by(2).collect();
    for mark in marks {
        let block = blocks.iter().find(|block| block.contains(mark)).expect("a block with that mark");
        // The first line is the rest of the fence.
        let code: Vec<_> = block.lines().skip(1).filter(|line| !line.starts_with("use ")).collect();
        assert!(without_layout(test_file).contains(&without_layout(&code.join("\n"))), "{chapter}: {block}");
    }
}

fn without_layout(code: &str) -> String {
    let code: String = code.split_whitespace().collect();
    [")", "]", "}"].iter().fold(code, |code, end| code.replace(&format!(",{end}"), end))
}

/// A request from the address 192.0.2.`last`.
fn from_peer(last: u8, request: http::request::Builder, body: &str) -> Request<Body> {
    let peer = PeerAddr(([192, 0, 2, last], 4_000).into());
    request.extension(peer).body(Body::from(body.to_owned())).unwrap()
}

async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.unwrap()
}

async fn status(app: &Router, request: Request<Body>) -> u16 {
    send(app, request).await.status().as_u16()
}
