//! The charges that handlers take as arguments.

use axum::Router;
use axum::extract::FromRequestParts;
use axum::routing::get;
use tollgate::charge::Charges;
use tollgate::extract::global;
use tollgate::{Charge, Policy, PolicyExt, Quota, RateLimitLayer, Rule, SetupError};
use tollgate_tests::{Client, Log, serve};

fn rule(name: &str) -> Rule {
    Policy::new(name, Quota::per_day(100)).by(global()).reserve(|_| 10)
}

async fn of_one(charge: Charge) -> String {
    charge.settle(1).await;
    charge.policy().to_owned()
}

async fn of_several(charges: Charges) -> String {
    charges.iter().map(Charge::policy).collect::<Vec<_>>().join(" ")
}

fn app() -> Router {
    Router::new().route("/", get(of_one)).route("/several", get(of_several))
}

#[tokio::test]
async fn a_handler_takes_the_only_charge_or_all_of_them() {
    let (log, _guard) = Log::of_thread();
    let layered = |rules: &[&str]| app().layer(RateLimitLayer::new(rules.iter().copied().map(rule)));
    let nested = layered(&["tokens"]).layer(RateLimitLayer::new(rule("bytes")));
    for (app, one, several) in [
        (layered(&["tokens"]), (200, "tokens"), "tokens"),
        (layered(&["tokens", "bytes"]), (500, ""), "tokens bytes"),
        (nested, (500, ""), "bytes tokens"),
        (app(), (500, ""), ""),
    ] {
        let mut client = Client::connect(serve(app).await).await;
        let answer = client.get("/", &[]).await;
        assert_eq!((answer.status, answer.body.as_str()), one);
        assert_eq!(client.get("/several", &[]).await.body, several);
    }
    let errors: Vec<String> = log.lines().into_iter().filter(|line| line.contains("ERROR")).collect();
    let [several, none] = &errors[..] else { panic!("not each mistake once: {errors:?}") };
    assert!(several.contains("take `tollgate::charge::Charges`"), "{several}");
    assert!(none.contains("call `.reserve(..)`"), "{none}");
}

#[tokio::test]
async fn a_missing_charge_says_what_to_call() {
    let mut parts = http::Request::new(()).into_parts().0;
    let missing: SetupError = Charge::from_request_parts(&mut parts, &()).await.unwrap_err();
    assert!(missing.to_string().contains("call `.reserve(..)`"), "{missing}");
}
