//! The example of a gateway to a language model.

use std::time::{Duration, Instant};

use reqwest::{Client, Response};
use tollgate_examples::testing::Program;

use crate::program::start;

/// A gateway, a client, and when both began.
struct Gateway(Program, Client, Instant);

impl Gateway {
    #[expect(clippy::disallowed_methods, reason = "bounds what the bucket can refill")]
    fn start() -> Gateway {
        Gateway(start("llm_gateway", &["127.0.0.1:0"]), Client::new(), Instant::now())
    }

    /// The most tokens that have come back by now, at 100 a minute.
    #[expect(clippy::disallowed_methods, reason = "bounds what the bucket can refill")]
    fn refilled(&self) -> u64 {
        1 + self.2.elapsed().as_secs() * 100 / 60 + 100 / 60
    }

    async fn ask(&self, max_tokens: u64, prompt: &str) -> Response {
        let request = self.1.post(format!("http://{}/", self.0.address())).body(prompt.to_owned());
        let request = request.header("x-api-key", "ada").header("x-max-tokens", max_tokens);
        request.send().await.expect("an answer")
    }

    /// The tokens that are left, by a request that the model refuses.
    async fn left(&self) -> u64 {
        let answer = self.ask(1, "crash").await;
        assert_eq!(answer.status(), 502);
        left(&answer) + 1
    }

    async fn assert_paid(&self, tokens: u64) {
        let left = self.left().await;
        assert!((100 - tokens..=100 - tokens + self.refilled()).contains(&left), "{left} are left");
    }
}

/// The tokens that are left, by the fields of an answer.
fn left(answer: &Response) -> u64 {
    let fields = answer.headers()["ratelimit"].to_str().expect("a text");
    let (_, tokens) = fields.split_once("\"tokens\";r=").expect("the policy");
    tokens.split(';').next().and_then(|tokens| tokens.parse().ok()).expect("a number")
}

fn words(count: usize) -> String {
    vec!["word"; count].join(" ")
}

#[tokio::test]
async fn the_llm_gateway_settles_to_the_usage_of_the_model() {
    let gateway = Gateway::start();
    let answer = gateway.ask(u64::MAX, &words(30)).await;
    assert_eq!((answer.status().as_u16(), left(&answer)), (200, 50), "half of the quota is reserved");
    let events = answer.text().await.unwrap();
    assert_eq!(events.matches("{\"token\":\"word\"}\n\n").count(), 30);
    assert!(events.ends_with("data: {\"usage\":{\"total_tokens\":60}}\n\n"), "{events}");
    gateway.assert_paid(60).await;
}

#[tokio::test]
async fn the_llm_gateway_charges_what_the_model_produced_before_it_failed() {
    let gateway = Gateway::start();
    let answer = gateway.ask(50, "crash").await;
    assert_eq!((answer.status().as_u16(), left(&answer)), (502, 50));
    gateway.assert_paid(0).await;
    let events = gateway.ask(50, &format!("{} crash", words(5))).await.text().await.unwrap();
    assert!(events.ends_with("event: error\ndata: the model has failed\n\n"), "{events}");
    gateway.assert_paid(6 + 5).await;
}

#[tokio::test]
async fn the_llm_gateway_charges_a_client_that_leaves_its_prompt_and_more() {
    let gateway = Gateway::start();
    let mut answer = gateway.ask(50, &words(20)).await;
    let mut read = 0;
    while read < 10 {
        read += answer.chunk().await.unwrap().unwrap().iter().filter(|byte| **byte == b'\n').count() / 2;
    }
    drop(answer);
    // Until the gateway notices.
    let mut left = 0;
    for _ in 0..40 {
        left = gateway.left().await;
        if left >= 60 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((60..=70 + gateway.refilled()).contains(&left), "{left} are left");
}

#[tokio::test]
async fn the_llm_gateway_ends_a_stream_that_the_quota_cannot_pay() {
    let gateway = Gateway::start();
    let events = gateway.ask(10, &words(80)).await.text().await.unwrap();
    let passed = events.matches("data: {\"token\"").count();
    assert!((20..=60).contains(&passed), "{passed} tokens");
    assert!(events.ends_with("event: error\ndata: quota exceeded: tokens\n\n"), "{events}");
    let refused = gateway.ask(50, "to be").await;
    assert_eq!((refused.status().as_u16(), left(&refused) < 50), (429, true));
    let field = |name| refused.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(field("ratelimit-policy"), r#""requests";q=60;w=60, "tokens";q=100;w=60"#);
    assert!((1..=30).contains(&field("retry-after").parse().unwrap()));
    assert!(refused.text().await.unwrap().contains(r#""violated-policies":["tokens"]"#));
}

#[tokio::test]
async fn the_llm_gateway_refuses_a_prompt_that_the_quota_cannot_pay() {
    let gateway = Gateway::start();
    let refused = gateway.ask(1, &words(1_000)).await;
    assert_ne!(refused.status(), 200);
    assert!(!refused.text().await.unwrap().contains("token\":"), "the model read it");
    gateway.assert_paid(0).await;
}
