//! The README of the repository: the code in its table. Its code blocks are doctests
//! of `examples/src/lib.rs`.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::StatusCode;
use tollgate::calendar::CalendarWindow;
use tollgate::calls::CallLimitLayer;
use tollgate::extract::{ClientIp, KeyExtractor, PeerIp, extension, extension_ref, matched_path};
use tollgate::jobs::{JobId, JobPolicy, JobTake, Jobs, MemoryJobs};
use tollgate::{
    Charge, Denial, Head, Key, Limit, Limiter, Permit, Policy, PolicyExt, Question, Quota, RateLimitLayer,
    Report, Rule, SetupError, Slot,
};
use tollgate_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use tollgate_examples::helloworld::{HelloReply, HelloRequest};
use tonic::transport::Server;
use tonic::{Request, Status};

const README: &str = include_str!("../../README.md");
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

fn class(head: &Head<'_>) -> Option<&'static str> {
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

struct Job {
    tenant: u64,
}

fn jobs(limiter: Limiter) -> CallLimitLayer<Job> {
    CallLimitLayer::new(limiter, |job: &Job| Some(Key::from(job.tenant)))
}

async fn client(api: Key, patience: Duration) -> Result<(), Denial> {
    let limiter = Limiter::new([Policy::new("api", Quota::per_second(10).paced())]);
    limiter.until_ready(&api, 1, patience).await.map(drop)
}

fn keys(policy: Policy) -> [Rule; 4] {
    let policy = || policy.clone();
    [
        policy().by(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])),
        policy().by(extension(|user: &User| user.id)),
        policy().by(extension_ref(|user: &User| user.name.as_str()).or(PeerIp::new())),
        policy().by((PeerIp::new(), matched_path())),
    ]
}

fn settings(rule: Rule) -> Rule {
    let rule = rule.tiers([("pro", Quota::per_minute(600))], |head: &Head<'_>, _: &Key| plan(head));
    let rule = rule.cost(|head: &Head<'_>| if head.method() == "POST" { 5 } else { 1 });
    let rule = rule.leaving([("batch", 200)], |head: &Head<'_>, _: &Key| class(head));
    let rule = rule.reserve(|_| 500);
    rule.exempt(|head: &Head<'_>| head.uri().path() == "/health")
}

fn shadow(rule: Rule) -> Rule {
    rule.shadow()
}

fn in_flight() -> Rule {
    Policy::in_flight("exports", 2).by(PeerIp::new())
}

fn calendar() -> Policy {
    CalendarWindow::month("Europe/Berlin").policy("monthly", 10_000)
}

async fn export(slot: Slot) -> bool {
    slot.is_lost()
}

async fn work(charge: Charge) {
    let used = 137;
    charge.settle(used).await;
}

fn layers(burst: Rule, daily: Rule) -> Router {
    let per_ip = RateLimitLayer::per_ip(Quota::per_minute(100));
    let limit = RateLimitLayer::new([burst, daily]);
    let limit = limit.answer(|_, denial| AppError::from(denial.clone()));
    let limit = limit.expose_report();
    let limit = limit.metrics();
    let route: MethodRouter = get(async |report: Report| report.iter().count().to_string());
    Router::new().route("/", route).route_layer(per_ip).layer(limit)
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

fn row(head: &Head<'_>) -> Option<Limit> {
    head.extensions().get().copied()
}

fn of_row(rule: Rule) -> Rule {
    rule.quota(|head: &Head<'_>, _: &Key| row(head))
}

async fn job(
    store: MemoryJobs,
    longest: Duration,
    key: Key,
    id: JobId<'_>,
    time: Duration,
) -> Result<JobTake, Infallible> {
    let jobs = Jobs::new(JobPolicy::new("exports", 2, longest), store);
    jobs.take(&key, id, time).await
}

async fn by_row(limiter: Limiter, key: Key, row: Limit) -> Result<Permit, Denial> {
    limiter.check_each(&[Question::new("api", &key, 1).limit(row)]).await
}

fn change(limit: &RateLimitLayer, rules: Vec<Rule>) -> Result<(), SetupError> {
    limit.replace(rules)?;
    limit.set_enabled(false);
    Ok(())
}

fn log_in(policy: Policy, time: Duration) -> Policy {
    policy.block_after(20, time)
}

#[test]
fn the_code_in_the_table_compiles() {
    let _ = (keys, settings, shadow, in_flight, calendar, export, work, layers, jobs, client, grpc, log_in);
    let _ = (of_row, job, by_row, change);
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
            // A policy is cloned here, to be used in several rows.
            let piece = without_blanks(piece).replace("policy.by(", "policy().by(");
            assert!(this_file.contains(&piece), "{piece} is not compiled in this file");
        }
    }
}

/// Each name of a row is imported once, above the table.
#[test]
fn the_imports_above_the_table_are_those_of_the_rows() {
    let (before, table) = README.split_once("| I want to … |").unwrap();
    let imports = before.rsplit("```rust").next().unwrap();
    let imports = imports.split("```").next().unwrap();
    let names = imports.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let names: Vec<_> =
        names.filter(|name| !["", "use", "tollgate", "extract", "calls"].contains(name)).collect();
    assert!(names.len() > 15, "{names:?}");
    let is_used =
        |name: &&str| table.contains(name) || ["PolicyExt", "KeyExtractor", "Policy"].contains(name);
    let unused: Vec<_> = names.iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}
