//! The README of the repository: the code in its table, and its links. Its code blocks are doctests
//! of `examples/src/lib.rs`.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::{Method, StatusCode};
use tollgate::calls::CallLimitLayer;
use tollgate::extract::{ClientIp, KeyExtractor, PeerIp, extension, extension_ref, matched_path};
use tollgate::usage::top_keys::{Recording, TopKeys};
use tollgate::{
    Algorithm, Decision, Denial, Head, Key, Lease, Limiter, ManualClock, MemoryStore, Policy, PolicyExt,
    Quota, RateLimitLayer, Report, Rule, Share, StoreExt,
};
use tollgate_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use tollgate_examples::helloworld::{HelloReply, HelloRequest};
use tollgate_redis::RedisStore;
use tonic::transport::Server;
use tonic::{Request, Status};

const README: &str = include_str!("../../../README.md");
const THIS_FILE: &str = include_str!("readme.rs");

#[derive(Clone)]
struct User {
    id: u64,
    name: String,
    plan: &'static str,
}

fn plan(head: &Head<'_>) -> Option<&'static str> {
    head.extensions().get::<User>().map(|user| user.plan)
}

struct AppError(StatusCode);

impl From<Denial> for AppError {
    fn from(denial: Denial) -> AppError {
        AppError(denial.status())
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

fn tracked(policy: Policy) -> Policy {
    policy.track_usage()
}

struct Job {
    tenant: u64,
}

fn jobs(policy: Policy) -> CallLimitLayer<Job> {
    CallLimitLayer::new(Limiter::new([policy]), |job: &Job| Some(Key::from(job.tenant)))
}

async fn client(api: Key, patience: Duration) -> Result<(), Denial> {
    let limiter = Limiter::new([Policy::new("api", Quota::per_second(10).paced())]);
    limiter.until_ready(&api, 1, patience).await.map(drop)
}

fn rules(api: Policy) -> Vec<Rule> {
    vec![
        api.clone().by(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])),
        api.clone()
            .by(extension_ref(|user: &User| user.name.as_str()).or(PeerIp::new()))
            .tiers([("pro", Quota::per_minute(600))], |head: &Head<'_>, _: &Key| plan(head)),
        api.clone()
            .by((PeerIp::new(), matched_path()))
            .cost(|head: &Head<'_>| if head.method() == Method::POST { 5 } else { 1 }),
        api.by(PeerIp::new()).exempt(|head: &Head<'_>| head.uri().path() == "/health"),
    ]
}

struct Counts;

impl Counts {
    fn add(&self, _: &Decision<'_>) {}
}

fn by_user(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(policy.by(extension(|user: &User| user.id)))
}

fn layers(burst: Rule, daily: Rule, redis: RedisStore, usage: &TopKeys<RedisStore>) -> Router {
    let limit = RateLimitLayer::per_ip(Quota::per_minute(100));
    let both = RateLimitLayer::new([burst, daily]);
    let both = both.answer(|_, denial| AppError::from(denial.clone())).expose_report();
    let redis = redis.leased(Lease::default());
    let redis = redis.deny_cache(100_000);
    let store = redis.fall_back_to(MemoryStore::new(), Share::new(1, 3));
    let recorder = usage.record(Recording::default());
    let store = store.count_usage(&recorder);
    let route: MethodRouter = get(async |report: Report| report.iter().count().to_string());
    let counts = Counts;
    let both = both.store(store).metrics().observe(move |decision| counts.add(decision));
    Router::new().route("/", route).route_layer(limit).layer(both)
}

struct Hello;

#[tonic::async_trait]
impl Greeter for Hello {
    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<tonic::Response<HelloReply>, Status> {
        Ok(tonic::Response::new(HelloReply::default()))
    }
}

fn grpc(limit: RateLimitLayer, greeter: GreeterServer<Hello>) {
    let _ = Server::builder().layer(limit).add_service(greeter);
}

async fn log_in(policy: Policy, user: Key) {
    let failures = Limiter::new([policy.with_algorithm(Algorithm::SLIDING_LOG)]);
    if let Ok(permit) = failures.check(&user, 1).await {
        failures.refund(permit).await;
    }
}

fn store(time: ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(&time).build()
}

#[test]
fn the_code_in_the_table_compiles() {
    let _ = (rules, by_user, layers, tracked, jobs, client, grpc, log_in, store);
    let this_file = without_blanks(THIS_FILE);
    let table = README.lines().skip_while(|line| !line.contains("| write … |")).skip(2);
    let rows: Vec<_> = table.take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let row = row.replace("\\|", "\0");
        let code = row.split('|').nth(2).unwrap().replace('\0', "|");
        let pieces: Vec<_> = code.split('`').skip(1).step_by(2).collect();
        assert!(!pieces.is_empty(), "{row}");
        for piece in pieces {
            assert!(this_file.contains(&without_blanks(piece)), "{piece} is not compiled in this file");
        }
    }
}

fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn relative_links_in_the_documents_lead_to_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let documents = [
        "README.md",
        "CONTRIBUTING.md",
        "docs/guarantees.md",
        "docs/comparison.md",
        "docs/scale.md",
        "ops/README.md",
    ];
    let mut links = 0;
    for document in documents.map(|name| root.join(name)) {
        let text = std::fs::read_to_string(&document).unwrap();
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let named =
            text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split("]: ").nth(1));
        for link in inline.chain(named).filter(|link| !link.contains("://")) {
            let path = document.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(path.exists(), "{}: {link} leads nowhere", document.display());
            links += 1;
        }
    }
    assert!(links > 20, "{links}");
}
