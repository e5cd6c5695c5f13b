//! What callers, handlers and outer layers receive.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use tollgate::extract::PeerAddr;
use tollgate::{Denial, Fields, Head, Key, Reason, Report, Share};
use tollgate_tests::{Later, Strict, call, clock, field, per_user, request, store, user};
use tower::{Layer, ServiceExt, service_fn};

use crate::service::layer;

/// Answers with what the layer put into the request's extensions.
fn what_is_left(request: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    let told = match request.extensions().get::<Report>() {
        None => "no report".to_owned(),
        Some(report) => report
            .iter()
            .map(|(policy, status)| format!("{} {}", policy.name(), status.remaining()))
            .collect(),
    };
    ready(Ok(Response::new(Body::from(told))))
}

async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Data = bytes::Bytes, Error: std::fmt::Debug>,
{
    let body = response.into_body().collect().await.expect("a whole body");
    String::from_utf8(body.to_bytes().into()).expect("a text")
}

#[tokio::test]
async fn the_verdict_is_exposed_to_handlers_and_to_outer_layers() {
    let clock = clock();
    let layer = layer(&clock, [per_user("p", 3)]).expose_report();
    let mut later = layer.clone().store(Later::deciding_last(store(&clock))).layer(service_fn(what_is_left));
    let mut service = layer.layer(service_fn(what_is_left));
    for left in [2, 1, 0] {
        for response in [call(&mut service, request("ada")).await, call(&mut later, request("ada")).await] {
            let report = response.extensions().get::<Report>().unwrap();
            let (policy, status) = report.iter().next().unwrap();
            assert_eq!((policy.name(), status.remaining()), ("p", left));
            assert_eq!(text(response).await, format!("p {left}"));
        }
    }
    let denied = call(&mut service, request("ada")).await;
    assert!(denied.extensions().get::<Denial>().is_some());
    assert!(denied.extensions().get::<Report>().is_none(), "the denial has it");
}

#[tokio::test]
async fn the_text_of_a_denial_names_the_policies_that_refused() {
    let clock = clock();
    let rules = [per_user("burst", 1), per_user("daily", 9), per_user("hourly", 1)];
    let mut service = layer(&clock, rules).layer(service_fn(what_is_left));
    assert!(call(&mut service, request("ada")).await.extensions().get::<Denial>().is_none());
    let denied = call(&mut service, request("ada")).await;
    assert_eq!(denied.extensions().get::<Denial>().unwrap().to_string(), "quota exceeded: burst, hourly");
    let denied = call(&mut service, request("")).await;
    let denial = denied.extensions().get::<Denial>().unwrap();
    assert_eq!(denial.to_string(), "the request carries no key: burst");
}

#[tokio::test]
async fn a_refusal_carries_no_extension_of_the_request() {
    #[derive(Clone)]
    struct Session;

    let own = |_: &Head<'_>, _: &Denial| "no\n";
    let kept = layer(&clock(), [per_user("p", 1)]);
    for layer in [kept.clone(), kept.answer(own)] {
        let mut service = layer.layer(service_fn(what_is_left));
        let mut denied = None;
        for _ in 0..2 {
            let mut request = request("ada");
            request.extensions_mut().insert(Session);
            denied = Some(call(&mut service, request).await);
        }
        let denied = denied.unwrap();
        assert!(denied.extensions().get::<Denial>().is_some());
        assert!(denied.extensions().get::<Session>().is_none());
    }
}

#[tokio::test]
async fn the_verdict_is_not_exposed_unless_asked_for() {
    let mut service = layer(&clock(), [per_user("p", 3)]).layer(service_fn(what_is_left));
    let response = call(&mut service, request("ada")).await;
    assert!(response.extensions().get::<Report>().is_none());
    assert_eq!(text(response).await, "no report");
}

#[tokio::test]
async fn a_policy_is_found_in_a_report_by_its_name() {
    let rules = [per_user("first", 5), per_user("second", 9)];
    let mut service = layer(&clock(), rules).expose_report().layer(Strict::default());
    let response = call(&mut service, request("ada")).await;
    let report = response.extensions().get::<Report>().unwrap();
    let (policy, status) = report.get("second").unwrap();
    assert_eq!((policy.capacity(), status.remaining()), (9, 8));
    assert_eq!(report.get("first").map(|(_, status)| status.remaining()), Some(4));
    assert!(report.get("third").is_none());
}

#[tokio::test]
async fn stacked_layers_expose_the_verdict_of_the_nearest() {
    let exposing = |name| layer(&clock(), [per_user(name, 3)]).expose_report();
    let mut service = exposing("outer").layer(exposing("inner").layer(service_fn(what_is_left)));
    let response = call(&mut service, request("ada")).await;
    let report = response.extensions().get::<Report>().unwrap();
    assert!(report.get("outer").is_some() && report.get("inner").is_none());
    assert_eq!(text(response).await, "inner 2");
}

/// Otherwise handlers that read a report would fail where no limit applies.
#[tokio::test]
async fn a_report_is_empty_where_no_rule_applies() {
    let exempt = || per_user("p", 1).exempt(|_: &Head<'_>| true);
    let everybody_exempt = layer(&clock(), [exempt()]).expose_report();
    let later = everybody_exempt.clone().store(Later::deciding_last(store(&clock())));
    let switched_off = layer(&clock(), [per_user("p", 1)]).expose_report();
    switched_off.set_enabled(false);
    let mut services = [
        everybody_exempt.layer(service_fn(what_is_left)).boxed_clone(),
        later.layer(service_fn(what_is_left)).boxed_clone(),
        switched_off.layer(service_fn(what_is_left)).boxed_clone(),
    ];
    for service in &mut services {
        for _ in 0..3 {
            let response = call(service, request("ada")).await;
            assert_eq!((response.status().as_u16(), response.headers().len()), (200, 0));
            assert_eq!(response.extensions().get::<Report>().unwrap().iter().count(), 0);
            assert_eq!(text(response).await, "");
        }
    }
}

#[tokio::test]
async fn a_denial_is_in_the_extensions_of_its_response() {
    let rules = [per_user("open", 100), per_user("narrow", 1)];
    let mut service = layer(&clock(), rules).layer(Strict::default());
    call(&mut service, request("ada")).await;
    let response = call(&mut service, request("ada")).await;
    let denial = response.extensions().get::<Denial>().unwrap();
    assert_eq!(denial.reason(), Reason::QuotaExceeded);
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["narrow"]);
    assert_eq!(denial.retry_after(), Some(std::time::Duration::from_secs(60)));
    let remaining: Vec<u64> = denial.report().statuses().iter().map(|status| status.remaining()).collect();
    assert_eq!(remaining, [99, 0], "those that had room are told as well, and were not charged");
    assert_eq!(field(&response, "ratelimit"), Some("\"open\";r=99;t=1, \"narrow\";r=0;t=60"));
}

#[tokio::test]
async fn each_reason_has_its_status_and_retry_after_only_if_waiting_helps() {
    let cost = |head: &Head<'_>| head.headers()["x-cost"].to_str().unwrap().parse().unwrap();
    let mut service = layer(&clock(), [per_user("p", 5).cost(cost)]).layer(Strict::default());
    let asking = |cost: &str| {
        let mut request = request("ada");
        request.headers_mut().insert("x-cost", cost.parse().unwrap());
        request
    };
    let mut told = Vec::new();
    for cost in ["4", "6", "2", "0", "1"] {
        let response = call(&mut service, asking(cost)).await;
        let denial = response.extensions().get::<Denial>().map(Denial::reason);
        told.push((response.status().as_u16(), field(&response, "retry-after").map(str::to_owned), denial));
    }
    let wait = Some("12".to_owned());
    let due = [
        (200, None, None),
        (422, None, Some(Reason::NeverPossible)),
        (429, wait, Some(Reason::QuotaExceeded)),
        (200, None, None),
        (200, None, None),
    ];
    assert_eq!(told, due);
    let response = call(&mut service, Request::new(Body::empty())).await;
    assert_eq!(response.extensions().get::<Denial>().unwrap().reason(), Reason::NoKey);
    assert_eq!((response.status(), field(&response, "retry-after")), (StatusCode::BAD_REQUEST, None));
    assert_eq!(field(&response, "ratelimit"), None, "no store was asked");
}

#[tokio::test]
async fn a_closure_can_answer_and_missing_fields_are_added() {
    let layer = layer(&clock(), [per_user("p", 1)]).answer(|head: &Head<'_>, denial: &Denial| {
        let user = head.headers().get("x-user").map_or("nobody", |user| user.to_str().unwrap());
        let mut response = Response::new(format!("{user}: {denial}"));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        if user == "ada" {
            response.headers_mut().insert("retry-after", "77".parse().unwrap());
        }
        response
    });
    let mut service = layer.layer(Strict::default());
    for (user, retry_after) in [("ada", "77"), ("bob", "60")] {
        assert_eq!(call(&mut service, request(user)).await.status(), 200);
        let response = call(&mut service, request(user)).await;
        assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
        assert_eq!(field(&response, "retry-after"), Some(retry_after));
        assert_eq!(response.headers().get_all("retry-after").iter().count(), 1);
        assert_eq!(field(&response, "ratelimit"), Some("\"p\";r=0;t=60"));
        assert!(response.extensions().get::<Denial>().is_some());
        assert_eq!(text(response).await, format!("{user}: quota exceeded: p"));
    }
    let response = call(&mut service, Request::new(Body::empty())).await;
    assert_eq!(text(response).await, "nobody: the request carries no key: p");
}

#[tokio::test]
async fn a_closure_that_answers_sees_the_whole_head_of_the_request() {
    let told = |head: &Head<'_>, _: &Denial| {
        let peer = head.extensions().get::<PeerAddr>().unwrap().0;
        let user = head.headers()["x-user"].to_str().unwrap();
        Response::new(format!("{} {} {:?} {user} {peer}", head.method(), head.uri(), head.version()))
    };
    let mut service = layer(&clock(), [per_user("p", 1)]).answer(told).layer(Strict::default());
    for answer in ["hello", "PUT /a?b=c HTTP/2.0 ada 192.0.2.1:4000"] {
        let mut request = request("ada");
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = "/a?b=c".parse().unwrap();
        *request.version_mut() = Version::HTTP_2;
        request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 4_000).into()));
        assert_eq!(text(call(&mut service, request).await).await, answer);
    }
}

/// The closure may change the default answer.
#[tokio::test]
async fn a_closure_can_change_the_default_answer() {
    let layer = layer(&clock(), [per_user("p", 1)]).answer(|_: &Head<'_>, denial: &Denial| {
        let mut response = denial.response();
        response.headers_mut().insert("x-more", "yes".parse().unwrap());
        response
    });
    let mut service = layer.layer(Strict::default());
    call(&mut service, request("ada")).await;
    let response = call(&mut service, request("ada")).await;
    assert_eq!((response.status().as_u16(), field(&response, "x-more")), (429, Some("yes")));
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn a_disabled_layer_passes_everything_unchanged() {
    let store = store(&clock());
    let layer = tollgate::RateLimitLayer::new([per_user("p", 1)]).store(store.clone());
    let mut off = layer.layer(service_fn(what_is_left));
    layer.set_enabled(false);
    for n in 0..5 {
        let asking = if n % 2 == 0 { request("ada") } else { Request::new(Body::empty()) };
        let response = call(&mut off, asking).await;
        assert_eq!(response.status(), 200);
        assert!(response.headers().is_empty() && response.extensions().is_empty());
        assert_eq!(text(response).await, "no report");
    }
    assert_eq!(store.keys(), 0, "nothing was counted");
    layer.set_enabled(true);
    let mut on = layer.layer(Strict::default());
    assert_eq!(call(&mut on, request("ada")).await.status(), 200);
    assert_eq!(call(&mut on, request("ada")).await.status(), 429);
}

#[tokio::test]
async fn a_rule_without_fields_limits_and_is_named_by_its_denial() {
    let rules = || [per_user("user", 1).without_fields(), per_user("all", 9)];
    let layer = layer(&clock(), rules()).expose_report();
    let mut service = layer.layer(service_fn(what_is_left));
    let passed = call(&mut service, request("ada")).await;
    assert_eq!(field(&passed, "ratelimit"), Some("\"all\";r=8;t=7"));
    assert_eq!(text(passed).await, "user 0all 8", "the report has both");
    let denied = call(&mut service, request("ada")).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("60"));
    assert_eq!(field(&denied, "ratelimit-policy"), Some("\"all\";q=9;w=60"));
    assert_eq!(field(&denied, "ratelimit"), Some("\"all\";r=8;t=7"));
    let denial = denied.extensions().get::<Denial>().unwrap();
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["user"]);
    assert!(text(denied).await.ends_with("\"violated-policies\":[\"user\"]}"));
}

#[tokio::test]
async fn a_layer_whose_rules_are_all_without_fields_writes_none() {
    let layer = layer(&clock(), [per_user("p", 1).without_fields()]);
    for fields in [Fields::Ietf, Fields::IetfAndXDelta, Fields::Draft06] {
        let mut service = layer.clone().store(store(&clock())).fields(fields).layer(Strict::default());
        for (status, retry_after) in [(200, None), (429, Some("60"))] {
            let response = call(&mut service, request("ada")).await;
            assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (status, retry_after));
            assert!(response.headers().keys().all(|name| !name.as_str().contains("ratelimit")));
        }
    }
}

#[tokio::test]
async fn stacked_layers_append_the_draft_fields() {
    let clock = clock();
    let (inner, outer) = (layer(&clock, [per_user("inner", 1)]), layer(&clock, [per_user("outer", 2)]));
    let mut service = outer.layer(inner.layer(Strict::default()));
    for (status, limits) in [
        (200, ["\"inner\";r=0;t=60", "\"outer\";r=1;t=30"]),
        (429, ["\"inner\";r=0;t=60", "\"outer\";r=0;t=60"]),
    ] {
        let response = call(&mut service, request("ada")).await;
        assert_eq!(response.status(), status);
        let all = |name: &str| response.headers().get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(all("ratelimit"), limits);
        assert_eq!(all("ratelimit-policy"), ["\"inner\";q=1;w=60", "\"outer\";q=2;w=60"]);
    }
    let response = call(&mut service, request("ada")).await;
    assert_eq!(response.headers().get_all("ratelimit").iter().count(), 1, "the outer one refuses by itself");
}

#[tokio::test]
async fn the_x_fields_of_an_inner_layer_are_kept() {
    let clock = clock();
    let x = |name, limit| layer(&clock, [per_user(name, limit)]).fields(Fields::XDelta);
    let mut service = x("outer", 10).layer(x("inner", 5).layer(Strict::default()));
    let response = call(&mut service, request("ada")).await;
    let told = ["limit", "remaining", "reset"].map(|name| format!("x-ratelimit-{name}"));
    assert_eq!(told.each_ref().map(|name| field(&response, name).unwrap()), ["5", "4", "12"]);
    assert!(told.iter().all(|name| response.headers().get_all(name).iter().count() == 1));
}

#[tokio::test]
async fn a_layer_and_its_limiter_share_their_state() {
    let layer = layer(&clock(), [per_user("p", 3)]);
    let (limiter, asks) = (layer.limiter(), request("ada"));
    let ada = Head::from(&asks);
    let mut service = layer.layer(Strict::default());
    call(&mut service, request("ada")).await;
    assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 2);
    let (one, other) = (limiter.check(&ada).await.unwrap(), limiter.check(&ada).await.unwrap());
    assert_eq!(call(&mut service, request("ada")).await.status(), 429);
    one.refund().await;
    other.refund().await;
    assert_eq!(call(&mut service, request("ada")).await.status(), 200);
    limiter.reset(&Key::from("ada")).await;
    assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 3);
    assert!(limiter.check(&ada).await.is_ok());
    assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 2);
}

#[tokio::test]
async fn rules_that_skip_or_share_where_there_is_no_key() {
    use tollgate::MissingKey::{OneKey, Skip};
    use tollgate::PolicyExt;
    let rule = |name: &str, limit| tollgate::Policy::new(name, tollgate::Quota::per_minute(limit)).by(user());
    let rules = [rule("skips", 1).on_missing_key(Skip), rule("shares", 2).on_missing_key(OneKey)];
    let mut service = layer(&clock(), rules).layer(Strict::default());
    for (status, policy) in
        [(200, "\"shares\";q=2;w=60"), (200, "\"shares\";q=2;w=60"), (429, "\"shares\";q=2;w=60")]
    {
        let response = call(&mut service, Request::new(Body::empty())).await;
        assert_eq!(
            (response.status().as_u16(), field(&response, "ratelimit-policy")),
            (status, Some(policy))
        );
    }
    assert_eq!(
        call(&mut service, request("ada")).await.status(),
        200,
        "those with a key do not share theirs"
    );
}

#[tokio::test]
async fn a_request_that_every_rule_skips_passes_without_fields() {
    let rule = per_user("p", 1).on_missing_key(tollgate::MissingKey::Skip);
    let mut service = layer(&clock(), [rule]).layer(Strict::default());
    for _ in 0..3 {
        let response = call(&mut service, Request::new(Body::empty())).await;
        assert_eq!((response.status().as_u16(), response.headers().len()), (200, 0));
    }
}

#[tokio::test]
async fn a_jitter_lengthens_what_clients_read_and_nothing_else() {
    let exact = Arc::new(Mutex::new(Vec::new()));
    let waits = Arc::clone(&exact);
    let layer = layer(&clock(), [per_user("p", 1)]).retry_jitter(Share::new(1, 2)).observe(move |decision| {
        waits.lock().unwrap().extend(decision.wait());
    });
    let mut service = layer.layer(service_fn(what_is_left));
    assert_eq!(field(&call(&mut service, request("ada")).await, "ratelimit"), Some("\"p\";r=0;t=60"));
    let mut seconds = BTreeSet::new();
    for _ in 0..200 {
        let denied = call(&mut service, request("ada")).await;
        let retry: u64 = field(&denied, "retry-after").unwrap().parse().unwrap();
        assert_eq!(field(&denied, "ratelimit"), Some(&*format!("\"p\";r=0;t={retry}")));
        let denial = denied.extensions().get::<Denial>().unwrap();
        assert_eq!(denial.retry_after_seconds(), Some(retry));
        seconds.insert(retry);
    }
    assert!(seconds.iter().all(|seconds| (60..=90).contains(seconds)), "{seconds:?}");
    assert!(seconds.len() > 15 && *seconds.last().unwrap() > 80, "{seconds:?}");
    assert_eq!(*exact.lock().unwrap(), [Duration::from_secs(60); 200]);
}
