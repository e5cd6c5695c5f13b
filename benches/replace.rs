//! What requests lose while rules are replaced: the requests per second of two threads, while rules
//! are parsed and applied a hundred times a second, compared with the same threads without that.
//!
//! `cargo bench -p tollgate-benches --bench replace`

#![expect(clippy::disallowed_methods, clippy::float_arithmetic, reason = "it measures")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use tollgate::RateLimitLayer;
use tollgate::config::{Registry, RuleFile};
use tollgate_benches::{HOT, callers, ready_service, request, send};
use tower::Layer;

const ROUND: Duration = Duration::from_secs(1);
const EDIT: Duration = Duration::from_millis(10);
const ROUNDS: usize = 5;

/// A file of five rules.
fn text(limit: u64) -> String {
    let rule = |n| format!("[[rule]]\nname = \"r{n}\"\nquota = \"{}/h\"\nby = \"ip\"\n", limit + n);
    (0..5).map(rule).collect()
}

fn apply(layer: &RateLimitLayer, text: &str) {
    let file = RuleFile::from_toml(text).expect("a valid file");
    layer.replace(Registry::new().rules(&file).expect("valid rules")).expect("valid rules");
}

/// The requests of one round.
fn round(layer: &RateLimitLayer, is_edited: bool) -> u64 {
    let (is_over, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let mut service = layer.layer(ready_service());
                while !is_over.load(Ordering::Relaxed) {
                    for n in callers(HOT).take(HOT as usize) {
                        send(&mut service, request(n));
                    }
                    requests.fetch_add(HOT.into(), Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < ROUND {
            if is_edited {
                apply(layer, &text(1_000_000_000 + layer.version() % 2));
            }
            sleep(EDIT);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    requests.into_inner()
}

fn main() {
    let layer = RateLimitLayer::per_ip(tollgate::Quota::per_hour(1));
    apply(&layer, &text(1_000_000_000));
    round(&layer, false);
    let mut ratios: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (without, with) = (round(&layer, false), round(&layer, true));
            println!("{without} requests a second without edits, {with} with a hundred");
            with as f64 / without as f64
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("median of the ratios: {:.3}", ratios[ROUNDS / 2]);
}
