//! What handlers and outer layers can read of the verdict.

use axum::Router;
use axum::extract::{FromRequestParts, Path, State};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use tollgate::extract::{global, header};
use tollgate::{
    Algorithm, Denial, Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer, Report, SetupError,
};
use tollgate_tests::{Client, Log, serve};

use crate::axum_server::{two, two_a_day};

async fn left(report: Report) -> String {
    match report.get("two") {
        Some((policy, status)) => format!("{} of {}", status.remaining(), policy.capacity()),
        None => "no limit".to_owned(),
    }
}

async fn left_if_known(report: Option<Report>) -> String {
    match report {
        Some(report) => left(report).await,
        None => "nobody knows".to_owned(),
    }
}

fn app() -> Router {
    Router::new().route("/", get(left)).route("/maybe", get(left_if_known))
}

#[tokio::test]
async fn a_handler_takes_the_report_as_an_argument() {
    let address = serve(app().layer(two_a_day(global()).expose_report())).await;
    let mut client = Client::connect(address).await;
    assert_eq!(client.get("/", &[]).await.body, "1 of 2");
    assert_eq!(client.get("/maybe", &[]).await.body, "0 of 2");
    assert_eq!(client.get("/", &[]).await.status, 429);
}

#[tokio::test]
async fn a_handler_gets_the_report_of_the_nearest_layer() {
    let outer = RateLimitLayer::new([Policy::new("outer", two()).by(global())]).expose_report();
    let app = app().layer(two_a_day(global()).expose_report()).layer(outer);
    assert_eq!(Client::connect(serve(app).await).await.get("/", &[]).await.body, "1 of 2");
}

/// If the layer is disabled, handlers that read the report must still work.
#[tokio::test]
async fn a_handler_finds_an_empty_report_where_no_limit_applies() {
    let off = two_a_day(global()).expose_report();
    off.set_enabled(false);
    assert_eq!(Client::connect(serve(app().layer(off)).await).await.get("/", &[]).await.body, "no limit");
    let rule = Policy::new("two", two()).by(header("x-user")).exempt(|_: &tollgate::Head<'_>| true);
    let exempt = RateLimitLayer::new([rule]).expose_report();
    let mut client = Client::connect(serve(app().layer(exempt)).await).await;
    assert_eq!(client.get("/", &[]).await.body, "no limit");
    assert_eq!(client.get("/maybe", &[]).await.body, "no limit");
}

#[tokio::test]
async fn an_unexposed_verdict_is_a_500_and_logged_once() {
    let (log, _guard) = Log::of_thread();
    let mut client = Client::connect(serve(app().layer(two_a_day(header("x-user")))).await).await;
    for user in ["ada", "bob", "cy"] {
        let answer = client.get("/", &[&format!("x-user: {user}")]).await;
        assert_eq!((answer.status, answer.body.as_str()), (500, ""), "clients are told nothing of it");
    }
    assert_eq!(client.get("/maybe", &["x-user: di"]).await.body, "nobody knows");
    let mut errors = log.lines();
    errors.retain(|line| line.contains("ERROR"));
    let [error] = &errors[..] else { panic!("not one error but {errors:?}") };
    assert!(error.contains(".expose_report()"), "{error}");
}

/// A handler that writes its own answer.
#[tokio::test]
async fn the_missing_report_can_be_handled() {
    let mut parts = http::Request::new(()).into_parts().0;
    let missing: SetupError = Report::from_request_parts(&mut parts, &()).await.unwrap_err();
    assert!(missing.to_string().contains(".expose_report()"));
}

async fn as_our_clients_expect(response: Response) -> Response {
    let Some(denial) = response.extensions().get::<Denial>() else { return response };
    let violated: Vec<&str> = denial.violated().collect();
    let body =
        format!("{} of {violated:?}, again in {:?}", denial.reason().status(), denial.retry_after_seconds());
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

#[tokio::test]
async fn an_outer_layer_maps_refusals_by_the_denial_in_their_extensions() {
    let policy = Policy::new("two", Quota::per_day(2)).with_algorithm(tollgate::Algorithm::FIXED_WINDOW);
    let layer = RateLimitLayer::new([policy.by(header("x-user"))]);
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let mut client = Client::connect(serve(app.layer(map_response(as_our_clients_expect))).await).await;
    for _ in 0..2 {
        assert_eq!(client.get("/", &["x-user: ada"]).await.body, "hello");
    }
    let refused = client.get("/", &["x-user: ada"]).await;
    assert_eq!(refused.status, 503);
    let told = "429 Too Many Requests of [\"two\"], again in Some(";
    assert!(refused.body.starts_with(told), "{}", refused.body);
    let without_a_key = client.get("/", &[]).await;
    assert_eq!(without_a_key.body, "400 Bad Request of [\"two\"], again in None");
}

/// A handler that asks the limiter itself and refuses with `?`.
#[tokio::test]
async fn a_handler_returns_the_denial_of_a_limiter_as_its_answer() {
    let mails = Limiter::new([Policy::new("mails", two()).with_algorithm(Algorithm::FIXED_WINDOW)]);
    let send = async |State(mails): State<Limiter>, Path(user): Path<String>| {
        let _permit = mails.check(&Key::from(user), 1).await?;
        Ok::<_, Denial>("sent")
    };
    let app = Router::new().route("/{user}", post(send)).with_state(mails);
    let mut client = Client::connect(serve(app.clone()).await).await;
    for _ in 0..2 {
        assert_eq!(client.request("POST", "/ada", &[]).await.body, "sent");
    }
    let refused = client.request("POST", "/ada", &[]).await;
    assert_eq!((refused.status, refused.field("retry-after").is_some()), (429, true));
    assert!(refused.body.contains("\"violated-policies\":[\"mails\"]"), "{}", refused.body);
    assert_eq!(client.request("POST", "/bob", &[]).await.body, "sent");
    let mut client = Client::connect(serve(app.layer(map_response(as_our_clients_expect))).await).await;
    let mapped = client.request("POST", "/ada", &[]).await;
    assert!(mapped.body.starts_with("429 Too Many Requests of [\"mails\"]"), "{}", mapped.body);
}
