//! The example of jobs with owners.

use reqwest::{Client, Method, Response};
use serde_json::Value;
use tollgate_examples::testing::Program;

use crate::program::start;

struct Queue(Program, Client);

impl Queue {
    async fn ask(&self, method: Method, path: &str) -> Response {
        let url = format!("http://{}/jobs/acme{path}", self.0.address());
        self.1.request(method, url).send().await.expect("an answer")
    }

    async fn status(&self, method: Method, path: &str) -> u16 {
        self.ask(method, path).await.status().as_u16()
    }

    /// The answer with this status, as JSON.
    async fn json(&self, method: Method, path: &str, status: u16) -> Value {
        let response = self.ask(method, path).await;
        assert_eq!(response.status().as_u16(), status, "{path}");
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON")
    }
}

#[tokio::test]
async fn two_jobs_run_and_a_late_worker_ends_none() {
    let queue = Queue(start("job_queue", &["127.0.0.1:0"]), Client::new());
    let first = queue.json(Method::POST, "/a", 201).await["attempt"].as_u64().unwrap();
    let again = queue.json(Method::POST, "/a", 201).await["attempt"].as_u64().unwrap();
    queue.json(Method::POST, "/b", 201).await;
    let refused = queue.ask(Method::POST, "/c").await;
    assert_eq!(refused.status().as_u16(), 429);
    let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");

    let held = queue.json(Method::GET, "", 200).await;
    let ids: Vec<&Value> = held.as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(held[0]["attempt"], again);

    assert_eq!(queue.status(Method::PUT, &format!("/a/{again}")).await, 204, "at work");
    for method in [Method::PUT, Method::DELETE] {
        assert_eq!(queue.status(method, &format!("/a/{first}")).await, 404, "a late worker");
    }
    assert_eq!(queue.status(Method::DELETE, &format!("/a/{again}")).await, 204);
    assert_eq!(queue.status(Method::DELETE, "/b").await, 204);
    assert_eq!(queue.status(Method::DELETE, "/b").await, 404);
    queue.json(Method::POST, "/c", 201).await;
    assert_eq!(queue.status(Method::POST, &format!("/{}", "x".repeat(129))).await, 400);
}
