//! Servers that forget scripts, and servers that restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::store::{Check, Grant, Store, StoreError, Times};
use tollgate::{Algorithm, Key, Policy, Quota};
use tollgate_test_servers::{Kind, Server};

use crate::redis::{Fresh, all_pass, eventually, every_policy, try_acquire, used};

/// An error would be a request that failed, or that passed without being counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_fail_no_request_and_grant_nothing_twice() {
    for &kind in Kind::EVERY {
        let server = Arc::new(Server::start(kind).unwrap());
        let fresh = Fresh::on(&server).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let flushing = tokio::task::spawn_blocking({
            let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    server.command(&["SCRIPT", "FLUSH"]).unwrap();
                }
            }
        });
        let mut callers = JoinSet::new();
        let policies: Arc<[Policy]> =
            every_policy(150, Duration::from_secs(36_000)).into_iter().map(|(policy, _)| policy).collect();
        for n in 0..8 {
            // Several handles are like several processes.
            let store = if n % 2 == 0 { fresh.store.clone() } else { fresh.again(&server.url()).await };
            let policies = Arc::clone(&policies);
            callers.spawn(async move {
                let mut granted = vec![0; policies.len()];
                let bob = Key::from("bob");
                for _ in 0..30 {
                    for (policy, granted) in policies.iter().zip(&mut granted) {
                        *granted += u64::from(try_acquire(&store, policy, "ada", 1).await.unwrap().times());
                    }
                    // A set of several checks, and its refund.
                    let set = [Check::new(&policies[0], &bob, 1), Check::new(&policies[3], &bob, 1)];
                    let verdict = store.acquire(&set, Times::ONCE).wait().await.unwrap();
                    assert!(verdict.is_granted());
                    let grants = set.iter().zip(verdict.each()).map(|(check, status)| {
                        let (policy, key, stamp) = (check.policy, check.key, status.stamp());
                        Grant { policy, key, units: 1, stamp, share: None }
                    });
                    store.refund(&grants.collect::<Vec<_>>()).await.unwrap();
                }
                granted
            });
        }
        let granted = callers.join_all().await;
        is_over.store(true, Ordering::Relaxed);
        flushing.await.unwrap();
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (n, policy) in policies.iter().enumerate() {
            // Logs of both layouts share this key.
            *sums.entry(policy.scope()).or_default() +=
                granted.iter().map(|of_caller| of_caller[n]).sum::<u64>();
        }
        for policy in &*policies {
            // A queue grants more later.
            assert_eq!(sums[policy.scope()], policy.largest_cost().min(240), "{} on {kind}", policy.name());
        }
    }
}

/// Other limiters kept a dead connection, or assumed that the server knew the script: minutes of
/// 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_fails_only_calls_in_flight() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        // The server keeps its data, so that the limit can be checked.
        let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = Server::start_with(kind, &arguments).unwrap();
        let fresh = Fresh::on(&server).await;
        let policy =
            Policy::new("p", Quota::per_day(Quota::MAX_UNITS)).with_algorithm(Algorithm::FIXED_WINDOW);
        let (granted, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for _ in 0..16 {
            let (store, policy, is_over) = (fresh.store.clone(), policy.clone(), Arc::clone(&is_over));
            let (granted, failed) = (Arc::clone(&granted), Arc::clone(&failed));
            callers.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    match try_acquire(&store, &policy, "ada", 1).await {
                        Ok(verdict) => {
                            granted.fetch_add(verdict.times().into(), Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert!(error.is_transient(), "{error}");
                            failed.fetch_add(1, Ordering::Relaxed);
                            tokio::task::yield_now().await;
                        }
                    }
                }
            });
        }
        for _ in 0..3 {
            let before = granted.load(Ordering::Relaxed);
            eventually("load", async || granted.load(Ordering::Relaxed) > before + 50).await;
            server.restart().unwrap();
            eventually("requests pass", async || try_acquire(&fresh.store, &policy, "bob", 1).await.is_ok())
                .await;
            let failed_until_now = failed.load(Ordering::Relaxed);
            // On a busy machine, another connection may have failed just now.
            eventually("50 in a row pass", async || all_pass(&fresh.store, &policy, 50).await).await;
            assert!(failed_until_now > 0, "nothing was on its way");
        }
        is_over.store(true, Ordering::Relaxed);
        callers.join_all().await;
        let (granted, failed) = (granted.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
        let used = used(&fresh.store, &policy, "ada").await;
        assert!(used >= granted, "{granted} granted, of which {used} are charged");
        // Only calls in flight may have charged without an answer, each once. Most errors are those
        // of a server that is down.
        assert!(used - granted <= 3 * 16, "{granted} granted, {used} charged, {failed} failed");
    }
}
