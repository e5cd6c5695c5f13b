//! A gateway to a language model that limits requests and tokens by API key. A request is charged
//! an estimate first, and the rest of its prompt before the model reads it. The gateway counts
//! tokens while they stream, and corrects the charge at the end. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example llm_gateway`, then a few times
//! `curl -iN -H 'x-api-key: ada' -H 'x-max-tokens: 30' -d 'to be or not to be' http://127.0.0.1:3000/`.
//! The field `RateLimit` shows what is left. The model is a server that this program starts. It
//! repeats the prompt word by word, and fails at the word `crash`.

use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::channel::{Channel, SendError, Sender};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::extract::header;
use tollgate::{Charge, Head, Policy, PolicyExt, Quota, RateLimitLayer, Share};

/// The tokens that are charged at a time once the estimate is used up.
const MORE: u64 = 20;

const EVENT_STREAM: [(http::HeaderName, &str); 1] = [(CONTENT_TYPE, "text/event-stream")];

/// The client of the model, and its URL.
#[derive(Clone)]
struct Model(Client, String);

/// The estimate of a request: what its caller wants at most.
fn asked_for(head: &Head<'_>) -> u64 {
    let tokens = head.headers().get("x-max-tokens").and_then(|tokens| tokens.to_str().ok()?.parse().ok());
    tokens.unwrap_or(40)
}

/// A real gateway asks the tokenizer of its model.
fn tokens_of(prompt: &str) -> u64 {
    prompt.split_whitespace().count() as u64
}

async fn complete(State(Model(client, url)): State<Model>, charge: Charge, prompt: String) -> Response {
    let of_prompt = tokens_of(&prompt);
    let more = of_prompt.saturating_sub(charge.reserved());
    if more > 0
        && let Err(denial) = charge.extend(more).await
    {
        return denial.into_response();
    }
    let answer = client.post(url).body(prompt).send().await.and_then(reqwest::Response::error_for_status);
    let Ok(answer) = answer else { return StatusCode::BAD_GATEWAY.into_response() };
    // From now on the model is paid for the prompt, also if the client leaves.
    charge.used(of_prompt);
    let (to_client, body) = Channel::new(1);
    tokio::spawn(forward(Events { answer, read: BytesMut::new() }, charge, to_client));
    (EVENT_STREAM, Body::new(body)).into_response()
}

/// Passes events on until one has the usage. If the model fails before, or the client leaves, the
/// drop of the charge settles it to what was used.
async fn forward(mut events: Events, charge: Charge, mut to_client: Sender<Bytes>) -> Result<(), SendError> {
    while let Ok(Some(event)) = events.next().await {
        if let Some(usage) = usage(&event) {
            charge.settle(usage).await;
            return to_client.send_data(event).await;
        }
        // A token that cannot be paid is not passed on.
        if charge.used_so_far() >= charge.reserved()
            && let Err(denial) = charge.extend(MORE).await
        {
            return to_client.send_data(format!("event: error\ndata: {denial}\n\n").into()).await;
        }
        charge.used(1);
        to_client.send_data(event).await?;
    }
    // Before the client can ask again.
    drop(charge);
    to_client.send_data("event: error\ndata: the model has failed\n\n".into()).await
}

/// The total of the last event.
fn usage(event: &[u8]) -> Option<u64> {
    let data: Value = serde_json::from_slice(event.strip_prefix(b"data: ")?).ok()?;
    data["usage"]["total_tokens"].as_u64()
}

/// The events of an answer.
struct Events {
    answer: reqwest::Response,
    read: BytesMut,
}

impl Events {
    async fn next(&mut self) -> reqwest::Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                return Ok(Some(self.read.split_to(end + 2).freeze()));
            }
            let Some(chunk) = self.answer.chunk().await? else { return Ok(None) };
            self.read.extend_from_slice(&chunk);
        }
    }
}

/// Stands for a model. It also counts the tokens of the prompt, as real ones do.
async fn model(prompt: String) -> Response {
    if prompt.starts_with("crash") {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let (mut to_client, body) = Channel::<Bytes>::new(1);
    tokio::spawn(async move {
        let mut words = 0;
        for word in prompt.split_whitespace() {
            if word == "crash" {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            to_client.send_data(format!("data: {}\n\n", json!({ "token": word })).into()).await?;
            words += 1;
        }
        let usage = json!({ "usage": { "total_tokens": 2 * words } });
        to_client.send_data(format!("data: {usage}\n\n").into()).await
    });
    (EVENT_STREAM, Body::new(body)).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let requests = Policy::new("requests", Quota::per_minute(60));
    let tokens = Policy::new("tokens", Quota::per_minute(100)).unit("tokens");
    // Both are charged, or none. Anyone can invent a key: authenticate outside of this layer.
    let limit = RateLimitLayer::new([
        requests.by(header("x-api-key")),
        tokens
            .by(header("x-api-key"))
            .reserve(asked_for)
            .reserve_at_most(Share::new(1, 2))
            // Errors cost no tokens.
            .count_if(|response| response.status().is_success()),
    ]);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let model_url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, Router::new().route("/", post(model))).into_future());

    let app =
        Router::new().route("/", post(complete)).layer(limit).with_state(Model(Client::new(), model_url));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
