//! Charges that follow the work: tokens, bytes, money and failures.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, channel::Channel};
use tollgate::extract::{PeerIp, header};
use tollgate::store::Settled;
use tollgate::{
    Algorithm, Charge, Head, Key, Limiter, Outcome, Policy, PolicyExt, Quota, RateLimitLayer, Rule,
    SetupError, Share, StoreExt,
};
use tollgate_tests::{Connection, Failing, Fault, clock, store};

use crate::guide::{from_peer, send, shows, status};

/// The tokens that the caller wants at most.
fn asked_for(head: &Head<'_>) -> u64 {
    let tokens = head.headers().get("x-max-tokens").and_then(|tokens| tokens.to_str().ok()?.parse().ok());
    tokens.unwrap_or(200)
}

fn budget() -> RateLimitLayer {
    let tokens = Policy::new("tokens", Quota::per_minute(1_000)).unit("tokens");
    RateLimitLayer::new([
        Policy::new("requests", Quota::per_minute(60)).by(header("x-api-key")),
        tokens
            .by(header("x-api-key"))
            .reserve(asked_for)
            .reserve_at_most(Share::new(1, 2))
            // Errors cost no tokens.
            .count_if(|response| response.status().is_success()),
    ])
}

/// Returns the tokens of an answer, and the usage that the model reports at its end.
async fn ask_model(prompt: &str) -> Result<(Vec<String>, u64), StatusCode> {
    let words: Vec<String> = prompt.split_whitespace().map(str::to_owned).collect();
    let usage = 2 * words.len() as u64;
    if words.is_empty() { Err(StatusCode::BAD_GATEWAY) } else { Ok((words, usage)) }
}

async fn chat(charge: Charge, prompt: String) -> Result<Body, StatusCode> {
    let of_prompt = prompt.split_whitespace().count() as u64;
    // It is paid before the model reads it.
    let more = of_prompt.saturating_sub(charge.reserved());
    if more > 0 {
        charge.extend(more).await.map_err(|denial| denial.status())?;
    }
    let (tokens, usage) = ask_model(&prompt).await?;
    // From here on it costs what was used, however this ends.
    charge.used(of_prompt);
    let (mut to_client, body) = Channel::<Bytes>::new(1);
    tokio::spawn(async move {
        for token in tokens {
            // Refused: the answer ends here, and nothing is owed.
            if charge.used_so_far() >= charge.reserved() && charge.extend(100).await.is_err() {
                return;
            }
            charge.used(1);
            if to_client.send_data(token.into()).await.is_err() {
                // The client has left.
                return;
            }
        }
        charge.settle(usage).await;
    });
    Ok(Body::new(body))
}

fn words(count: usize) -> String {
    vec!["word"; count].join(" ")
}

/// A gateway with a clock that stands still.
struct Gateway(Router, RateLimitLayer);

impl Gateway {
    fn start() -> Gateway {
        let limit = budget().store(store(&clock()));
        Gateway(Router::new().route("/", post(chat)).layer(limit.clone()), limit)
    }

    async fn ask(&self, max_tokens: u64, prompt: &str) -> Response {
        let request = Request::post("/").header("x-api-key", "ada").header("x-max-tokens", max_tokens);
        send(&self.0, from_peer(1, request, prompt)).await
    }

    async fn left(&self) -> u64 {
        let request = Request::post("/").header("x-api-key", "ada").body(()).unwrap();
        self.1.limiter().look(&Head::from(&request)).await.unwrap().statuses()[1].remaining()
    }
}

async fn length(response: Response) -> usize {
    response.into_body().collect().await.unwrap().to_bytes().len()
}

#[tokio::test]
async fn a_stream_is_settled_to_the_usage_that_the_model_reports() {
    shows("charges.md", include_str!("charges.rs"), &["fn chat"]);
    let gateway = Gateway::start();
    let answer = gateway.ask(300, &words(100)).await;
    assert_eq!((answer.status().as_u16(), gateway.left().await), (200, 700));
    assert_eq!(length(answer).await, 400);
    tokio::task::yield_now().await;
    assert_eq!(gateway.left().await, 800, "more than was streamed, and less than reserved");
    assert_eq!(gateway.ask(100_000, "").await.status().as_u16(), 502);
    assert_eq!(gateway.left().await, 800, "nothing was produced");
}

#[tokio::test]
async fn a_client_that_leaves_pays_for_its_prompt_and_for_what_was_produced() {
    let gateway = Gateway::start();
    let mut body = gateway.ask(300, &words(200)).await.into_body();
    for _ in 0..10 {
        body.frame().await.unwrap().unwrap();
    }
    drop(body);
    tokio::task::yield_now().await;
    // One is in the channel, and one is refused by it.
    assert!((788..=790).contains(&gateway.left().await), "{}", gateway.left().await);
}

#[tokio::test]
async fn a_stream_beyond_its_estimate_ends_where_the_quota_does() {
    let gateway = Gateway::start();
    assert_eq!(gateway.ask(50, &words(2_000)).await.status().as_u16(), 422, "the prompt never fits");
    assert_eq!(length(gateway.ask(50, &words(550)).await).await, 4 * 400, "the last step does not fit");
    tokio::task::yield_now().await;
    assert_eq!(gateway.left().await, 50);
    let refused = gateway.ask(500, "to be").await;
    let fields = refused.headers()["ratelimit"].to_str().unwrap();
    assert_eq!((refused.status().as_u16(), fields), (429, r#""requests";r=58;t=2, "tokens";r=50;t=27"#));
}

/// A download of usual size.
const USUAL: u64 = 20_000;

fn downloads() -> Policy {
    Policy::new("downloads", Quota::per_hour(1_000_000)).unit("content-bytes")
}

/// For responses to which a service has given a length.
fn by_length() -> RateLimitLayer {
    let length = |headers: &HeaderMap| headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    let rule = downloads().by(PeerIp::new()).cost(|_| USUAL);
    RateLimitLayer::new(rule.cost_by(move |response| length(response.headers()).unwrap_or(USUAL)))
}

/// For all responses: a middleware inside the limit counts what is sent.
async fn count(charge: Charge, request: Request, next: Next) -> Response {
    next.run(request).await.map(|body| {
        charge.used(0);
        Body::new(body.map_frame(move |frame| {
            charge.used(frame.data_ref().map_or(0, |data| data.len() as u64));
            frame
        }))
    })
}

fn counted(routes: Router) -> Router {
    let limit = RateLimitLayer::new(downloads().by(PeerIp::new()).reserve(|_| USUAL));
    routes.layer(from_fn(count)).layer(limit)
}

/// The units that are left, by the field of a response.
fn left(response: &Response) -> u64 {
    let field = response.headers()["ratelimit"].to_str().unwrap();
    field.split(';').find_map(|part| part.strip_prefix("r=")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn downloads_are_charged_by_length_or_by_what_was_sent() {
    shows("charges.md", include_str!("charges.rs"), &["fn by_length"]);
    let routes = || {
        let long = || async { ([(CONTENT_LENGTH, 500_000)], vec![0; 500_000]) };
        Router::new().route("/long", get(long)).route("/short", get(|| async { vec![0; 1_000] }))
    };
    let ask = async |app: &Router, path| send(app, from_peer(1, Request::get(path), "")).await;

    let app = routes().layer(by_length().store(store(&clock())));
    let left_after = async |path| left(&ask(&app, path).await);
    assert_eq!([left_after("/long").await, left_after("/short").await], [980_000, 480_000]);
    assert_eq!(left_after("/short").await, 460_000, "axum adds its length later: the estimate stays");

    let app = counted(routes());
    assert_eq!(length(ask(&app, "/long").await).await, 500_000);
    assert_eq!(length(ask(&app, "/short").await).await, 1_000);
    assert!((479_000..489_000).contains(&left(&ask(&app, "/short").await)));
    assert!((479_000..489_000).contains(&left(&ask(&app, "/short").await)), "nothing was sent");
}

/// In nano-dollars.
const DOLLAR: u64 = 1_000_000_000;

/// What a response has cost. Its handler leaves it for the limit.
#[derive(Clone)]
struct Price(u64);

fn spending() -> Rule {
    let usual = DOLLAR / 10;
    Policy::new("spending", Quota::per_day(20 * DOLLAR))
        .unit("nano-dollars")
        .by(header("x-team"))
        .cost(move |_| usual)
        .cost_by(move |response| response.extensions().get().map_or(usual, |Price(price)| *price))
}

async fn summarize(text: String) -> (Extension<Price>, &'static str) {
    let price = text.len() as u64 * 2_500;
    (Extension(Price(price)), "a summary")
}

#[tokio::test]
async fn a_team_spends_a_sum_of_money_a_day() {
    shows("charges.md", include_str!("charges.rs"), &["fn spending"]);
    let limit = RateLimitLayer::new(spending()).store(store(&clock()));
    let app = Router::new().route("/", post(summarize)).layer(limit.clone());
    let request = || Request::post("/").header("x-team", "a");
    assert_eq!(status(&app, from_peer(1, request(), &words(1_000))).await, 200);
    let request = request().body(()).unwrap();
    let report = limit.limiter().look(&Head::from(&request)).await.unwrap();
    assert_eq!(report.statuses()[0].remaining(), 20 * DOLLAR - 4_999 * 2_500);
    assert_eq!(Quota::MAX_UNITS / DOLLAR, 1_099, "dollars are the most");
    assert!(Policy::try_new("most", Quota::per_day(1_099 * DOLLAR)).is_ok());
}

fn failures() -> Rule {
    Policy::new("failures", Quota::per_hour(5))
        .with_algorithm(Algorithm::SLIDING_LOG)
        .by(PeerIp::new())
        .count_if(|response| response.status() == StatusCode::UNAUTHORIZED)
}

#[tokio::test]
async fn five_failures_an_hour_are_allowed_and_successes_are_free() {
    shows("charges.md", include_str!("charges.rs"), &["fn failures"]);
    let check = async |password: String| match password.as_str() {
        "secret" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    };
    let app = Router::new().route("/", post(check)).layer(RateLimitLayer::new(failures()));
    let log_in = async |password| status(&app, from_peer(1, Request::post("/"), password)).await;
    for _ in 0..10 {
        assert_eq!(log_in("secret").await, 200);
    }
    for _ in 0..5 {
        assert_eq!(log_in("guess").await, 401);
    }
    assert_eq!(log_in("secret").await, 429);
}

async fn reserve(
    limiter: &Limiter<impl tollgate::store::Store<Error: tollgate::store::NeverFails>>,
) -> Charge {
    let mut permit = limiter.check(&Key::from("ada"), 100).await.unwrap();
    permit.charge("tokens")
}

/// The table of outages. What a fallback does is tested in `failure/charges.rs`.
#[tokio::test]
async fn in_an_outage_the_estimate_stays() {
    let failing = Failing::new(store(&clock()), Connection::Works);
    let limiter =
        Limiter::new([Policy::new("tokens", Quota::per_minute(1_000))]).store(failing.clone().fail_open());
    for (fault, total, expected) in [
        (Fault::Refused, 40, Settled { charged: 100, ..Settled::default() }),
        (Fault::Refused, 140, Settled { charged: 100, forgiven: 40, ..Settled::default() }),
        (Fault::Unreachable, 40, Settled { charged: 40, unknown: 60, ..Settled::default() }),
        (Fault::Unreachable, 140, Settled { charged: 100, unknown: 40, ..Settled::default() }),
    ] {
        failing.set(Connection::Works);
        let charge = reserve(&limiter).await;
        failing.set(Connection::Fails(fault));
        assert_eq!(charge.settle(total).await, expected);
    }
    let passed_open = reserve(&limiter).await;
    failing.set(Connection::Works);
    assert_eq!(
        passed_open.settle(40).await,
        Settled { charged: 0, debt: 0, forgiven: 40, ..Settled::default() }
    );
}

fn watched(limit: RateLimitLayer, unpaid: Arc<AtomicU64>) -> RateLimitLayer {
    limit.observe(move |decision| {
        if decision.outcome() == Outcome::Forgiven {
            unpaid.fetch_add(decision.units(), Ordering::Relaxed);
        }
    })
}

#[tokio::test]
async fn an_observer_adds_up_what_is_not_paid() {
    shows("charges.md", include_str!("charges.rs"), &["fn watched"]);
    let unpaid = Arc::new(AtomicU64::new(0));
    let rule = Policy::new("tokens", Quota::per_minute(1_000)).by(PeerIp::new()).reserve(|_| 100);
    let settle = async |charge: Charge| {
        charge.settle(2_500).await;
    };
    let limit = watched(RateLimitLayer::new(rule), Arc::clone(&unpaid)).store(store(&clock()));
    let app = Router::new().route("/", get(settle)).layer(limit);
    assert_eq!(status(&app, from_peer(1, Request::get("/"), "")).await, 200);
    assert_eq!(unpaid.load(Ordering::Relaxed), 500);
}

#[test]
fn a_leaky_bucket_cannot_be_reserved() {
    let leaky = Algorithm::LeakyBucket { max_wait: std::time::Duration::from_secs(1) };
    let tokens = Policy::new("tokens", Quota::per_minute(1_000)).with_algorithm(leaky);
    let error = RateLimitLayer::try_new(tokens.by(PeerIp::new()).reserve(|_| 100)).unwrap_err();
    assert_eq!(error, SetupError::NoDebt("tokens".to_owned()));
}
