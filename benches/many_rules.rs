//! What a file of 5,000 rules costs: to read it, to replace it, to compare it with another as
//! `tollgate check --before` does; and a request to which one of them applies, with an observer and
//! without, compared with the same request when that rule is the only one.
//!
//! `cargo bench -p tollgate-benches --bench many_rules`

#![expect(clippy::disallowed_methods, clippy::float_arithmetic, reason = "it measures")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use http::Request;
use tollgate::config::{Registry, RuleFile};
use tollgate::{Quota, RateLimitLayer};
use tollgate_benches::{ready_service, send};
use tower::Layer;

const RULES: u32 = 5_000;
const ROUNDS: usize = 9;
const REQUESTS: u32 = 10_000;

/// The median of some calls.
fn median(mut call: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

/// A file of rules, each for a path of its own.
fn text(rules: impl Iterator<Item = u32>, limit: u32) -> String {
    let rule = |n| {
        format!("[[rule]]\nname = \"r{n}\"\nquota = \"{limit}/h\"\nby = \"ip\"\nwhen.path = \"/p/{n}/*\"\n")
    };
    rules.map(rule).collect()
}

fn layer(text: &str) -> RateLimitLayer {
    let layer = RateLimitLayer::per_ip(Quota::per_hour(1));
    apply(&layer, &RuleFile::from_toml(text).expect("a valid file"));
    layer
}

fn apply(layer: &RateLimitLayer, file: &RuleFile) {
    layer.replace(Registry::new().rules(file).expect("valid rules")).expect("valid rules");
}

/// The time of a request to which one rule applies.
fn request(layer: &RateLimitLayer) -> Duration {
    let mut service = layer.layer(ready_service());
    let mut requests = || {
        for _ in 0..REQUESTS {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = "/p/4711/users".parse().expect("a URI");
            let peer = std::net::SocketAddr::from(([10, 0, 0, 1], 4_711));
            request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
            black_box(send(&mut service, request));
        }
    };
    median(&mut requests) / REQUESTS
}

fn main() {
    let (earlier, next) = (text(0..RULES, 1_000_000_000), text(0..RULES, 1_000_000_001));
    let files = [&earlier, &next].map(|text| RuleFile::from_toml(text).expect("a valid file"));
    let read = median(|| drop(black_box(RuleFile::from_toml(&earlier))));
    println!("to read {RULES} rules: {read:.1?}");
    let replaced = layer(&earlier);
    let mut turn = 0;
    let replace = median(|| {
        turn += 1;
        apply(&replaced, &files[turn % 2]);
    });
    println!("to replace them: {replace:.1?}, {:.2} x the reading", ratio(replace, read));
    let compare = median(|| {
        let compared = layer(&earlier);
        apply(&compared, &RuleFile::from_toml(&next).expect("a valid file"));
    });
    println!(
        "to read and compare two files: {compare:.1?}, {:.2} x the reading of one",
        ratio(compare, read)
    );

    let count = AtomicU64::new(0);
    let count: &'static AtomicU64 = Box::leak(Box::new(count));
    let seen = |layer: RateLimitLayer| {
        layer.observe(|_| {
            count.fetch_add(1, Ordering::Relaxed);
        })
    };
    let alone = || layer(&text(4_711..4_712, 1_000_000_000));
    for (name, one, many) in [
        ("without an observer", request(&alone()), request(&layer(&earlier))),
        ("with an observer", request(&seen(alone())), request(&seen(layer(&earlier)))),
    ] {
        println!("a request {name}: {many:.2?}, {:.2} x that to the only rule", ratio(many, one));
    }
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
