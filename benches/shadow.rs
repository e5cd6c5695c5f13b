//! What 20 rules in shadow cost the requests that enforced rules decide in Redis: the median wait
//! with them, as a multiple of that without. Requests come at a fixed rate, in rounds that
//! alternate. The share of a processor that Redis took is shown, too.
//!
//! Then another client takes two thirds of the processor of Redis, and a failure policy decides
//! what takes longer than 50 ms.
//!
//! `cargo bench -p tollgate-benches --bench shadow`

#![expect(clippy::disallowed_methods, clippy::float_arithmetic, reason = "it measures")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::Request;
use tokio::task::JoinSet;
use tollgate::extract::header;
use tollgate::store::Source;
use tollgate::{Head, Outcome, Policy, PolicyExt, Quota, RequestLimiter, Rule, StoreExt};
use tollgate_benches::ServerCost;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

const IN_SHADOW: usize = 20;
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
const RATES: [u32; 4] = [250, 500, 1_000, 2_000];
const KEYS: u32 = 1_000;

fn rule(name: &str) -> Rule {
    Policy::new(name, Quota::per_day(8_640_000)).by(header("x-user"))
}

struct Round {
    /// In nanoseconds.
    waits: Histogram<u64>,
    /// The share of a processor that Redis took.
    redis: f64,
}

impl Round {
    /// In microseconds.
    fn wait(&self, percentile: f64) -> f64 {
        self.waits.value_at_percentile(percentile) as f64 / 1e3
    }
}

/// Requests that begin at fixed times.
async fn round<S>(limiter: &RequestLimiter<S>, rate: u32, server: &Server) -> Round
where
    S: tollgate::store::Store<Error: tollgate::store::NeverFails>,
{
    let before = ServerCost::of(server);
    let (start, mut requests) = (Instant::now(), JoinSet::new());
    for n in 0..rate * u32::try_from(ROUND.as_secs()).expect("it is small") {
        tokio::time::sleep_until((start + Duration::from_secs(1) * n / rate).into()).await;
        let limiter = limiter.clone();
        requests.spawn(async move {
            let request = Request::get("/").header("x-user", n % KEYS).body(()).expect("a request");
            let asked = Instant::now();
            let permit = limiter.check(&Head::from(&request)).await;
            assert!(permit.is_ok());
            u64::try_from(asked.elapsed().as_nanos()).expect("it fits")
        });
    }
    let mut waits = Histogram::new(3).expect("a histogram");
    for wait in requests.join_all().await {
        waits.record(wait).expect("a histogram that grows");
    }
    let processor = ServerCost::of(server).processor - before.processor;
    Round { waits, redis: processor / start.elapsed().as_micros() as f64 }
}

#[tokio::main]
async fn main() {
    let server = Server::start(Kind::Redis8_2).expect("a server");
    let store = RedisStore::connect(&server.url()).await.expect("a store").fail_closed();
    let dropped = Arc::new(AtomicU64::new(0));
    let limiter = |in_shadow: usize| {
        let shadow = (0..in_shadow).map(|n| rule(&format!("shadow-{n}")).shadow());
        let rules: Vec<Rule> = std::iter::once(rule("enforced")).chain(shadow).collect();
        let dropped = Arc::clone(&dropped);
        RequestLimiter::new(rules).store(store.clone()).observe(move |decision| {
            let is_dropped = decision.outcome() == Outcome::ShadowDropped;
            dropped.fetch_add(is_dropped.into(), Ordering::Relaxed);
        })
    };
    let (without, with) = (limiter(0), limiter(IN_SHADOW));
    println!("| requests a second | p50 us without | with | ratio | p99 | Redis without | with | dropped |");
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|");
    for rate in RATES {
        dropped.store(0, Ordering::Relaxed);
        let mut rounds: Vec<[Round; 2]> = Vec::new();
        for number in 0..=ROUNDS {
            let pair = [round(&without, rate, &server).await, round(&with, rate, &server).await];
            // The first makes the keys.
            rounds.extend((number > 0).then_some(pair));
        }
        let ratio =
            |[without, with]: &[Round; 2], percentile| with.wait(percentile) / without.wait(percentile);
        rounds.sort_by(|a, b| ratio(a, 50.0).total_cmp(&ratio(b, 50.0)));
        let median = &rounds[ROUNDS / 2];
        let [before, after] = median;
        println!(
            "| {rate} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            before.wait(50.0),
            after.wait(50.0),
            ratio(median, 50.0),
            ratio(median, 99.0),
            before.redis,
            after.redis,
            dropped.load(Ordering::Relaxed),
        );
    }
    beside_another_client(&server).await;
}

/// Counts what the failure policy decides while another client takes two thirds of the processor of
/// Redis, without rules in shadow and with them.
async fn beside_another_client(server: &Server) {
    let redis = RedisStore::connect(&server.url()).await.expect("a store");
    let store = redis.timeout(Duration::from_millis(50)).fail_open();
    let limiter = |in_shadow: usize| {
        let failed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&failed);
        let shadow = (0..in_shadow).map(|n| rule(&format!("shadow-{n}")).shadow());
        let rules: Vec<Rule> = std::iter::once(rule("enforced")).chain(shadow).collect();
        let limiter = RequestLimiter::new(rules).store(store.clone()).observe(move |decision| {
            let is_failed =
                decision.outcome() == Outcome::Allowed && decision.source() == Source::FailurePolicy;
            count.fetch_add(is_failed.into(), Ordering::Relaxed);
        });
        (limiter, failed)
    };
    let ((without, failed_without), (with, failed_with)) = (limiter(0), limiter(IN_SHADOW));
    println!();
    println!("| beside another client | p50 us without | with | Redis | failed without | with | of |");
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    for rate in RATES {
        let other = Other::of(server);
        let (mut pairs, mut all) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let pair = [round(&without, rate, server).await, round(&with, rate, server).await];
            all += pair[0].waits.len();
            pairs.push(pair);
        }
        drop(other);
        let [before, after] = &pairs[ROUNDS / 2];
        let failed = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        println!(
            "| {rate} | {:.0} | {:.0} | {:.2} | {} | {} | {all} |",
            before.wait(50.0),
            after.wait(50.0),
            after.redis,
            failed(&failed_without),
            failed(&failed_with),
        );
    }
}

/// Another client, which keeps Redis busy for two thirds of the time.
struct Other(Arc<AtomicBool>);

impl Other {
    fn of(server: &Server) -> Other {
        let (address, is_over) = (server.address(), Arc::new(AtomicBool::new(false)));
        let other = Other(Arc::clone(&is_over));
        thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            let work = "local sum = 0; for n = 1, 20000 do sum = sum + n end; return sum";
            let command = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{work}\r\n$1\r\n0\r\n", work.len());
            let mut call = || {
                let began = Instant::now();
                stream.write_all(command.as_bytes()).expect("it is sent");
                let read = stream.read(&mut [0; 64]).expect("an answer");
                assert!(read > 0, "Redis closed the connection");
                began.elapsed()
            };
            let alone = (0..20).map(|_| call()).min().expect("it was called");
            let mut next = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                // What begins at fixed times makes up for a call that was late.
                next += alone * 3 / 2;
                thread::sleep(next.saturating_duration_since(Instant::now()));
                call();
            }
        });
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
