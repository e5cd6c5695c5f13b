//! Requests in flight: exports, tenants, queues, sockets and jobs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use http::StatusCode;
use http::header::{CONNECTION, UPGRADE};
use http_body_util::{BodyExt, channel::Channel};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tollgate::extract::{extension, global, header};
use tollgate::store::{NeverFails, Store};
use tollgate::{
    Denial, Head, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Rule, Share, Slot,
    StoreExt,
};
use tollgate_tests::{Connection, Failing, Fault, clock, store};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder, load_shed::LoadShedLayer};

use crate::guide::{from_peer, send, shows, status};

const THIS_FILE: &str = include_str!("in_flight.rs");

fn exports() -> RateLimitLayer {
    RateLimitLayer::new([
        Policy::new("requests", Quota::per_minute(60)).by(header("x-api-key")),
        Policy::in_flight("exports", 2).by(header("x-api-key")),
    ])
}

async fn read_page(page: u64) -> Bytes {
    Bytes::from(format!("page {page}\n"))
}

async fn export(slot: Slot) -> Body {
    let (mut to_client, body) = Channel::new(1);
    tokio::spawn(async move {
        for page in 1..=10 {
            let rows = read_page(page).await;
            if slot.is_lost() {
                // The error tells the client that rows are missing.
                return to_client.abort(io::Error::other("the slot was lost"));
            }
            if to_client.send_data(rows).await.is_err() {
                // The client has left.
                return;
            }
        }
    });
    Body::new(body)
}

/// A request of the tenant or caller `ada`.
fn ada() -> Request {
    let request = Request::get("/").header("x-api-key", "ada").header("x-tenant", "ada");
    from_peer(1, request, "")
}

/// The free slots of each rule for such a request.
async fn free<S: Store<Error: NeverFails>>(limit: &RateLimitLayer<S>, request: &Request) -> Vec<u64> {
    let report = limit.limiter().look(&Head::from(request)).await.unwrap();
    report.statuses().iter().map(tollgate::store::Status::remaining).collect()
}

#[tokio::test]
async fn two_exports_of_a_caller_run_at_once_until_their_bodies_end() {
    shows("in_flight.md", THIS_FILE, &["fn exports"]);
    let limit = exports().store(store(&clock()));
    let app = Router::new().route("/", get(export)).layer(limit.clone());
    let running = [send(&app, ada()).await, send(&app, ada()).await];
    let field = |response: &Response, name| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        field(&running[0], "ratelimit-policy"),
        r#""requests";q=60;w=60, "exports";q=2;qu="concurrent-requests""#
    );
    assert_eq!(field(&running[0], "ratelimit"), r#""requests";r=59;t=1, "exports";r=1"#);
    let refused = send(&app, ada()).await;
    assert_eq!((refused.status().as_u16(), field(&refused, "retry-after").as_str()), (429, "1"));
    assert_eq!(free(&limit, &ada()).await, [58, 0], "no rate is charged");
    let [first, second] = running;
    let pages = first.into_body().collect().await.unwrap().to_bytes();
    assert_eq!((pages.len(), free(&limit, &ada()).await), (71, vec![58, 1]), "it has ended");
    drop(second);
    assert_eq!(free(&limit, &ada()).await, [58, 2], "its client has left");
}

#[derive(Clone)]
struct Tenant {
    id: u64,
    plan: &'static str,
}

fn of_tenant() -> [Rule; 2] {
    let plan = |head: &Head<'_>, _: &Key| head.extensions().get::<Tenant>().map(|tenant| tenant.plan);
    [
        Policy::in_flight("tenant", 1)
            .by(extension(|tenant: &Tenant| tenant.id))
            .tiers([("pro", Quota::in_flight(3)), ("enterprise", Quota::in_flight(20))], plan),
        Policy::in_flight("all", 100).by(global()),
    ]
}

#[tokio::test]
async fn each_plan_has_its_number_of_slots() {
    shows("in_flight.md", THIS_FILE, &["fn of_tenant"]);
    let limit = RateLimitLayer::new(of_tenant());
    let app = Router::new().route("/", get(export)).layer(limit.clone());
    let request = |plan| {
        let mut request = ada();
        request.extensions_mut().insert(Tenant { id: 7, plan });
        request
    };
    let running = [send(&app, request("pro")).await, send(&app, request("pro")).await];
    for (plan, left) in [("pro", 1), ("enterprise", 18), ("free", 0)] {
        assert_eq!(free(&limit, &request(plan)).await, [left, 98], "{plan}: the tenant keeps its slots");
    }
    assert_eq!(status(&app, request("free")).await, 429);
    drop(running);
}

fn in_turn() -> Rule {
    Policy::in_flight("exports", 1).by(header("x-api-key")).wait_at_most(Duration::from_secs(5))
}

#[tokio::test(start_paused = true)]
async fn an_export_waits_for_the_one_before_it() {
    shows("in_flight.md", THIS_FILE, &["fn in_turn"]);
    let app = Router::new().route("/", get(export)).layer(RateLimitLayer::new(in_turn()));
    let first = send(&app, ada()).await;
    let waiting = tokio::spawn({
        let app = app.clone();
        async move { send(&app, ada()).await }
    });
    sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished());
    drop(first);
    let second = waiting.await.unwrap();
    assert_eq!(second.status(), StatusCode::OK);
    let begin = Instant::now();
    assert_eq!((status(&app, ada()).await, begin.elapsed().as_secs()), (429, 5));
}

fn readers() -> Rule {
    Policy::in_flight("readers", 1).by(header("x-api-key")).held_at_most(Duration::from_secs(60))
}

async fn events(slot: Slot) -> Body {
    let (mut to_client, body) = Channel::<Bytes>::new(1);
    tokio::spawn(async move {
        let send_events = async { while to_client.send_data("event\n".into()).await.is_ok() {} };
        tokio::select! {
            () = send_events => {}
            () = slot.lost() => {}
        }
    });
    Body::new(body)
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_loses_its_slot_and_its_response_ends() {
    shows("in_flight.md", THIS_FILE, &["fn readers"]);
    let limit = RateLimitLayer::new(readers());
    let app = Router::new().route("/", get(events)).layer(limit.clone());
    let reader = send(&app, ada()).await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(free(&limit, &ada()).await, [0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(free(&limit, &ada()).await, [1]);
    let read = reader.into_body().collect().await.unwrap().to_bytes();
    assert!(read.starts_with(b"event\n"), "what was sent before");
}

/// Repeats what it reads.
async fn talk(connection: Upgraded) {
    let (mut read, mut write) = split(TokioIo::new(connection));
    let _ = copy(&mut read, &mut write).await;
}

async fn socket(slot: Slot, mut request: Request) -> Response {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        tokio::select! {
            () = talk(connection) => {}
            () = slot.lost() => {}
        }
    });
    (StatusCode::SWITCHING_PROTOCOLS, [(CONNECTION, "upgrade"), (UPGRADE, "echo")]).into_response()
}

#[tokio::test]
async fn a_socket_holds_its_slot_until_its_connection_ends() {
    shows("in_flight.md", THIS_FILE, &["async fn socket"]);
    let limit = RateLimitLayer::new(Policy::in_flight("sockets", 1).by(header("x-api-key")));
    let app = Router::new().route("/", get(socket)).layer(limit.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = b"GET / HTTP/1.1\r\nhost: a\r\nx-api-key: ada\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    connection.write_all(head).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(connection.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{answer:?}");
    connection.write_all(b"hello").await.unwrap();
    let mut echo = [0; 5];
    connection.read_exact(&mut echo).await.unwrap();
    assert_eq!((&echo, free(&limit, &ada()).await), (b"hello", vec![0]));
    drop(connection);
    while free(&limit, &ada()).await != [1] {
        sleep(Duration::from_millis(5)).await;
    }
}

fn jobs() -> Limiter {
    Limiter::new([Policy::in_flight("jobs", 1)])
}

async fn run(jobs: &Limiter, tenant: Key) -> Result<&'static str, Denial> {
    let permit = jobs.until_ready(&tenant, 1, Duration::from_secs(60)).await?;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(10)) => Ok("done"),
        () = permit.slot().lost() => Ok("stopped: the slot was lost"),
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_tenant_run_one_after_another() {
    shows("in_flight.md", THIS_FILE, &["fn jobs"]);
    let (jobs, begin) = (jobs(), Instant::now());
    let acme = || run(&jobs, Key::from("acme"));
    let (first, second, other) = tokio::join!(acme(), acme(), run(&jobs, Key::from("zoo")));
    assert_eq!([first.unwrap(), second.unwrap(), other.unwrap()], ["done"; 3]);
    assert_eq!(begin.elapsed().as_secs(), 20);
}

/// The table of outages, for new requests.
#[tokio::test]
async fn in_an_outage_the_failure_policy_decides_on_slots() {
    let failing = || Failing::new(store(&clock()), Connection::Fails(Fault::Unreachable));
    let exports = || RateLimitLayer::new(Policy::in_flight("exports", 2).by(header("x-api-key")));
    let routes = || Router::new().route("/", get(export));

    let closed = routes().layer(exports().store(failing().fail_closed()));
    assert_eq!(status(&closed, ada()).await, 503);

    let is_lost = async |slot: Slot| slot.is_lost().to_string();
    let open = Router::new().route("/", get(is_lost)).layer(exports().store(failing().fail_open()));
    for _ in 0..10 {
        let body = send(&open, ada()).await.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "false");
    }

    let fallback = |nodes| failing().fall_back_to(MemoryStore::new(), Share::new(1, nodes));
    let shared = routes().layer(exports().store(fallback(2)));
    let first = send(&shared, ada()).await;
    assert_eq!((first.status().as_u16(), status(&shared, ada()).await), (200, 429), "one of two slots");
    let shared = routes().layer(exports().store(fallback(3)));
    assert_eq!(status(&shared, ada()).await, 503, "less than one slot");
    let shared = routes().layer(exports().store(fallback(3).at_least_one()));
    let first = send(&shared, ada()).await;
    assert_eq!((first.status().as_u16(), status(&shared, ada()).await), (200, 429), "one slot");
}

/// Serves until the value is `true`, and then for as long as the `grace` that requests get.
async fn serve<S: Store<Error: NeverFails>>(
    listener: TcpListener,
    routes: Router,
    limit: RateLimitLayer<S>,
    is_stopped: watch::Receiver<bool>,
    grace: Duration,
) -> io::Result<()> {
    let stopped = |mut is_stopped: watch::Receiver<bool>| async move {
        let _ = is_stopped.wait_for(|is_stopped| *is_stopped).await;
    };
    let app = routes.layer(limit.clone()).into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, app);
    tokio::select! {
        served = server.with_graceful_shutdown(stopped(is_stopped.clone())) => served?,
        () = async { stopped(is_stopped).await; sleep(grace).await } => {}
    }
    let unsent = limit.close(Duration::from_secs(2)).await;
    if !unsent.is_nothing() {
        eprintln!("{unsent}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_stops_although_a_request_does_not_end() {
    shows("in_flight.md", THIS_FILE, &["async fn serve"]);
    let limit = exports();
    let routes = Router::new().route("/", get(async |slot: Slot| slot.lost().await));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, is_stopped) = watch::channel(false);
    let server = tokio::spawn(serve(listener, routes, limit.clone(), is_stopped, Duration::from_millis(100)));
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-api-key: ada\r\n\r\n").await.unwrap();
    while free(&limit, &ada()).await[1] > 1 {
        sleep(Duration::from_millis(5)).await;
    }
    stop.send(true).unwrap();
    server.await.unwrap().unwrap();
}

fn shared_machine(routes: Router, places: usize) -> Router {
    let slots = Policy::in_flight("tenant", 2).by(header("x-tenant"));
    let layers = ServiceBuilder::new()
        .layer(RateLimitLayer::new(slots))
        .layer(HandleErrorLayer::new(async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE))
        .layer(LoadShedLayer::new())
        .layer(GlobalConcurrencyLimitLayer::new(places));
    routes.layer(layers)
}

#[tokio::test(start_paused = true)]
async fn a_full_machine_answers_503_and_a_tenant_without_a_slot_gets_429() {
    shows("in_flight.md", THIS_FILE, &["fn shared_machine"]);
    let work = async || sleep(Duration::from_secs(1)).await;
    let app = shared_machine(Router::new().route("/", get(work)), 3);
    let of = |tenant| {
        let request = from_peer(1, Request::get("/").header("x-tenant", tenant), "");
        let app = app.clone();
        tokio::spawn(async move { status(&app, request).await })
    };
    let mut statuses = Vec::new();
    for task in ["a", "a", "a", "b", "b", "b"].map(of) {
        statuses.push(task.await.unwrap());
    }
    assert_eq!(statuses, [200, 200, 429, 200, 503, 503], "what is shed gives its slot back");
}
