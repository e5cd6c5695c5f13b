//! Slots that move while they are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::failure::CircuitState;
use tollgate::failure::Event;
use tollgate::store::Source;
use tollgate::store::{Check, ErrorKind, Store, StoreError, Times};
use tollgate::usage::Totals;
use tollgate::{CircuitBreaker, Key, StoreExt};
use tollgate_test_servers::{Cluster, Kind, Server};

use super::{a_day, another_master, elsewhere, home, start, store};
use crate::redis::{acquire, eventually, prefix, try_acquire, used};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_fails_no_request_and_the_limit_stands() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let cluster = Arc::new(Cluster::start(kind).unwrap());
        let prefix = prefix();
        let store = store(&cluster, &prefix).await;
        let policy = a_day("p", u32::MAX.into());
        // One key exists before, and others of its slot are created during the move. A hash tag
        // inside a key has no effect.
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        let (granted, is_over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let (store, policy) = (store.clone(), policy.clone());
            let (granted, is_over) = (Arc::clone(&granted), Arc::clone(&is_over));
            callers.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let verdict = try_acquire(&store, &policy, "ada", 1).await.unwrap();
                    granted.fetch_add(verdict.times(), Ordering::Relaxed);
                }
            });
        }
        let more = async || {
            let before = granted.load(Ordering::Relaxed);
            eventually("load", async || {
                assert!(!callers.is_empty());
                granted.load(Ordering::Relaxed) > before + 100
            })
            .await;
        };
        more().await;
        cluster.begin_migration(slot, to).unwrap();
        more().await;
        // A new key in the slot meets ASK. Another handle asks for it, because callers of one
        // handle share calls, which the next test covers.
        let elsewhere = self::store(&cluster, &prefix).await;
        let names = (0..100_000).map(|n| format!("new{n}"));
        let new: Vec<String> = names.filter(|key| slot_by_crc(key) == slot).take(2).collect();
        for key in &new {
            for taken in 1..=5 {
                acquire(&elsewhere, &policy, key, 1).await;
                assert_eq!(used(&elsewhere, &policy, key).await, taken);
            }
        }
        tokio::task::spawn_blocking({
            let (cluster, to) = (Arc::clone(&cluster), to.port());
            move || {
                let to = cluster.nodes().iter().find(|node| node.port() == to).unwrap();
                cluster.finish_migration(slot, to).unwrap();
            }
        })
        .await
        .unwrap();
        more().await;
        for key in &new {
            assert_eq!(used(&store, &policy, key).await, 5);
        }
        is_over.store(true, Ordering::Relaxed);
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        assert_eq!(
            used(&store, &policy, "ada").await,
            u64::from(granted.load(Ordering::Relaxed)),
            "on {kind}"
        );

        // By then the store knows the new owner and leaves the old one alone.
        eventually("the old owner is left alone", async || {
            let calls = || from.command(&["INFO", "commandstats"]).unwrap();
            from.command(&["CONFIG", "RESETSTAT"]).unwrap();
            for _ in 0..10 {
                acquire(&store, &policy, "ada", 1).await;
            }
            !calls().contains("cmdstat_evalsha")
        })
        .await;
    }
}

/// A call with several keys of a moving slot is refused while some keys are on one node and some on
/// the other. Each key alone is decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_a_slot_that_moves_do_not_fail_each_other() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2] {
        let (cluster, prefix, store) = start(kind).await;
        let policy = a_day("p", 1_000);
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        let names = (0..1_000_000).map(|n| format!("new{n}"));
        let mut keys: Vec<String> = names.filter(|key| slot_by_crc(key) == slot).take(7).collect();
        keys.push("ada".to_owned());
        acquire(&store, &policy, "ada", 1).await;
        acquire(&store, &policy, &keys[0], 1).await;
        cluster.begin_migration(slot, to).unwrap();
        let mut callers = JoinSet::new();
        for key in keys.iter().cycle().take(64) {
            let (store, policy, key) = (store.clone(), policy.clone(), key.clone());
            callers.spawn(async move {
                for _ in 0..5 {
                    assert!(acquire(&store, &policy, &key, 1).await.is_granted());
                }
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        cluster.finish_migration(slot, to).unwrap();
        for (n, key) in keys.iter().enumerate() {
            let before = u64::from(n == 0 || key == "ada");
            assert_eq!(used(&store, &policy, key).await, 8 * 5 + before, "{key} on {kind}");
        }
    }
}

/// The old owner may finish before the new one. Until then each names the other. On one thread, so
/// that a slow command to a node does not use up the retries.
#[tokio::test]
async fn a_redirect_loop_between_nodes_is_waited_out() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let (cluster, prefix, store) = start(kind).await;
        let policy = a_day("p", 1_000);
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        acquire(&store, &policy, "bob", 1).await;
        cluster.begin_migration(slot, to).unwrap();
        let id = to.command(&["CLUSTER", "MYID"]).unwrap();
        let is_of = |master: &Server| {
            master.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", id.trim()]).unwrap()
        };
        is_of(from);
        let answered = async { acquire(&store, &policy, "ada", 1).await };
        let late = async {
            sleep(Duration::from_millis(60)).await;
            is_of(to);
        };
        let (verdict, ()) = tokio::join!(answered, late);
        assert!(verdict.is_granted(), "on {kind}");
        assert_eq!(used(&store, &policy, "ada").await, 1);
    }
}

/// The set has two new keys. The old and the new owner both refuse it until the slot has moved. On
/// one thread, so that slow commands to nodes do not use up the retries.
#[tokio::test]
async fn a_set_in_a_moving_slot_waits_and_charges_no_caller_that_left() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2] {
        let (cluster, prefix, store) = start(kind).await;
        let policies = [a_day("p", 1_000), a_day("q", 1_000)];
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        acquire(&store, &policies[0], "elsewhere", 1).await;
        let key = Key::from("ada");
        let set = policies.each_ref().map(|policy| Check::new(policy, &key, 1));
        let hasty = store.clone().timeout(Duration::from_millis(100));
        cluster.begin_migration(slot, to).unwrap();
        // On a busy machine, the retries may be over before the slot has moved.
        let patient = async {
            loop {
                match store.acquire(&set, Times::ONCE).wait().await {
                    Err(error) if error.kind() == ErrorKind::Moving => {}
                    answer => return answer.unwrap(),
                }
            }
        };
        let hasty = async {
            refused_while_it_moves(&hasty, &set).await;
            cluster.finish_migration(slot, to).unwrap();
        };
        let (patient, ()) = tokio::join!(patient, hasty);
        assert!(patient.is_granted(), "on {kind}");
        for policy in &policies {
            // The set was executed after its second caller had left, so that one is not charged.
            assert_eq!(used(&store, policy, "ada").await, 1, "on {kind}");
        }
    }
}

#[tokio::test]
async fn a_set_of_which_one_slot_moves_is_no_timeout() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    let policies = [a_day("p", 1_000), a_day("q", 1_000)];
    let (slot, from) = home(&cluster, &prefix, "ada");
    let keys = [Key::from("ada"), Key::from(elsewhere(&cluster, &prefix, "ada"))];
    acquire(&store, &policies[0], "elsewhere", 1).await;
    cluster.begin_migration(slot, another_master(&cluster, from)).unwrap();
    let set = [(0, 0), (1, 0), (0, 1)].map(|(policy, key)| Check::new(&policies[policy], &keys[key], 1));
    let hasty = store.clone().timeout(Duration::from_millis(100));
    refused_while_it_moves(&hasty, &set).await;
}

/// Asks for a set until it is refused because its slot moves. Its deadline is noticed between two
/// retries, or during one. On a busy machine the nodes may be late instead.
async fn refused_while_it_moves<S: Store<Error: StoreError>>(store: &S, set: &[Check<'_>]) {
    eventually("it is refused", async || {
        let Err(error) = store.acquire(set, Times::ONCE).wait().await else { panic!("it is decided") };
        assert!(
            matches!(error.kind(), ErrorKind::Moving | ErrorKind::Overloaded | ErrorKind::Timeout),
            "{error}"
        );
        error.kind() != ErrorKind::Timeout
    })
    .await;
}

/// The state of a key and its usage are two keys of one slot. While only one of them has moved,
/// both nodes refuse the call. On one thread, so that slow commands to nodes do not use up the
/// retries.
#[tokio::test]
async fn a_tracked_check_in_a_moving_slot_is_charged_once_or_fails() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2] {
        let (cluster, prefix, store) = start(kind).await;
        let totals = Totals::new(store.clone());
        let policy = a_day("p", 1_000).track_usage();
        let key = Key::from("ada");
        let set = [Check::new(&policy, &key, 1)];
        for (moves_first, before) in [("~usage", 0), ("~fixed", 5)] {
            let (slot, from) = home(&cluster, &prefix, "ada");
            let to = another_master(&cluster, from);
            let refusals = || refusals(from) + refusals(to);
            assert_eq!(acquire(&store, &policy, "ada", 2).await.each()[0].remaining(), 998 - before);
            cluster.begin_migration(slot, to).unwrap();
            let names = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "9"]).unwrap();
            let name = names.lines().find(|name| name.contains(moves_first)).expect("two names");
            from.command(&["MIGRATE", "127.0.0.1", &to.port().to_string(), name, "0", "5000"]).unwrap();

            // The move does not end during the retries.
            let refused = refusals();
            let error = store.acquire(&set, Times::ONCE).wait().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Moving, "{error}");
            assert!(error.is_transient(), "{error}");
            assert!(refusals() >= refused + 5, "it was not retried on {kind}");

            // It ends while callers of the key wait for their retries.
            let refused = refusals();
            let replies = [(); 3].map(|()| store.acquire(&set, Times::ONCE));
            eventually("the call is retried", async || refusals() >= refused + 3).await;
            cluster.finish_migration(slot, to).unwrap();
            for reply in replies {
                assert!(reply.wait().await.unwrap().is_granted(), "on {kind}");
            }
            assert_eq!(used(&store, &policy, "ada").await, before + 5, "on {kind}");
            let total = totals.of("p", &key).await.unwrap().unwrap().total;
            assert_eq!(total, before + 5, "on {kind}");
        }
    }
}

/// An attacker invents keys of a slot that is being moved, and has two rules: each of its sets is
/// refused. If that counted as an outage, the circuit would open for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_keys_of_a_moving_slot_do_not_open_the_circuit() {
    let (cluster, prefix, connected) = start(Kind::Redis8_2).await;
    let (slot, from) = home(&cluster, &prefix, "ada");
    cluster.begin_migration(slot, another_master(&cluster, from)).unwrap();
    let store = connected.clone().timeout(Duration::from_secs(2)).circuit_breaker(CircuitBreaker::default());
    let circuit = store.circuit();
    let undecided = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&undecided);
    let store = store.fail_open().observe(move |event| {
        if event == Event::Decided(Source::FailurePolicy) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let policies = [a_day("p", 1_000), a_day("q", 1_000)];
    let mut attackers = JoinSet::new();
    for name in (0..).map(|n| format!("new{n}")).filter(|name| slot_by_crc(name) == slot).take(40) {
        let (store, policies) = (store.clone(), policies.clone());
        attackers.spawn(async move {
            let key = Key::from(name);
            let set = policies.each_ref().map(|policy| Check::new(policy, &key, 1));
            let Ok(_) = store.acquire(&set, Times::ONCE).wait().await;
        });
    }
    let (log_ins, victim) = (a_day("log-ins", 3), Key::from("victim"));
    let mut passed = 0;
    while !attackers.is_empty() {
        let Ok(verdict) = store.acquire(&[Check::new(&log_ins, &victim, 1)], Times::ONCE).wait().await;
        passed += verdict.times();
        attackers.try_join_next();
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(passed, 3, "guesses that passed");
    assert_eq!(circuit.state(), CircuitState::Closed);
    assert_eq!(undecided.load(Ordering::Relaxed), 40, "the sets of the attacker, and no guess");
}

/// How often a node refused a call because it has only some of its keys.
fn refusals(node: &Server) -> u32 {
    let stats = node.command(&["INFO", "errorstats"]).unwrap();
    let count = stats.lines().find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count="));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// The first slot moves to a master that has none yet. Only the redirection names that master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_can_move_to_a_new_master() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    let policy = a_day("p", 1_000);
    let (slot, _) = home(&cluster, &prefix, "ada");
    let arguments = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
    let new = Server::start_with(Kind::Redis8_2, &arguments).unwrap();
    new.command(&["CLUSTER", "MEET", "127.0.0.1", &cluster.nodes()[0].port().to_string()]).unwrap();
    eventually("it knows all", async || {
        new.command(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:ok")
    })
    .await;
    eventually("it is known to all", async || cluster.begin_migration(slot, &new).is_ok()).await;
    for n in 1..=3 {
        acquire(&store, &policy, "ada", 1).await;
        assert_eq!(used(&store, &policy, "ada").await, n);
    }
}

/// The slot of a key, computed here: CRC-16/XMODEM over the part in braces.
fn slot_by_crc(key: &str) -> u16 {
    let crc = format!("={key}").bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}
