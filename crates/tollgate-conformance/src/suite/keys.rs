//! Whose quota it is.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota, Store};

use super::bench::{Bench, WINDOW, plain};

pub(super) async fn keys_do_not_share_a_quota<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let keys = [
        Key::global(),
        Key::from("1"),
        Key::from(1_u64),
        Key::from("2"),
        Key::from("192.0.2.1"),
        Key::from(IpAddr::from([192, 0, 2, 1])),
        Key::from("192.0.2.1").of_branch(1),
        Key::join([Key::from("a"), Key::from("bc")]),
        Key::join([Key::from("ab"), Key::from("c")]),
    ];
    for policy in plain() {
        for key in &keys {
            bench.left("of another key", &policy, key, 5).await;
            bench.must_take(&policy, key, 5).await;
            bench.denied(&policy, key, 1).await;
        }
    }
}

pub(super) async fn policies_of_another_name_window_or_algorithm_do_not_share_a_quota<
    S: Store<Error: Debug>,
>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    let mut policies = Vec::new();
    for name in ["a", "b", "A", "a:b", "a~gcra~10s"] {
        for micros in [WINDOW, WINDOW + 1, 2 * WINDOW] {
            let quota = Quota::new(5, Duration::from_micros(micros));
            policies.push(Policy::new(name, quota));
            for algorithm in plain().iter().skip(2).map(Policy::algorithm) {
                policies.push(Policy::new(name, quota).with_algorithm(algorithm));
            }
            let other = Algorithm::SlidingBuckets { buckets: 7 };
            policies.push(Policy::new(name, quota).with_algorithm(other));
        }
    }
    for policy in &policies {
        bench.left(&format!("of {}", policy.scope()), policy, &key, 5).await;
        bench.must_take(policy, &key, 5).await;
    }
    for policy in &policies {
        bench.left(&format!("of {}", policy.scope()), policy, &key, 0).await;
    }
}

pub(super) async fn long_keys_and_binary_keys_are_told_apart<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let mut long = vec![b'x'; 10_000];
    let mut values = vec![long.clone()];
    // The same but for the last byte, but for the first, and but for the length.
    long[9_999] = b'y';
    values.push(long.clone());
    long[9_999] = b'x';
    long[0] = b'y';
    values.push(long);
    values.push(vec![b'x'; 10_001]);
    values.extend((0..=255).map(|byte| vec![byte]));
    values.extend(
        [&b"\0\0"[..], b"a\0b", b"a", b"a\r\nb", b"\xff\xfe", b"\xc3\xa4", b"\xc3"].map(<[u8]>::to_vec),
    );
    let texts =
        ["{a}", "{a}:b", "{", "}{", "a:b", "a%3Ab", "%", "%25", "a b", "a~b", "*", "?", "[a]", "\"a\"", "ä"];
    values.extend(texts.map(|text| text.as_bytes().to_vec()));
    // "a" and "ä" are there twice.
    values.sort();
    values.dedup();
    let policies = plain();
    for policy in [&policies[0], &policies[2]] {
        for value in &values {
            let key = Key::from_bytes(value);
            bench.left("of a key of its own", policy, &key, 5).await;
            bench.must_take(policy, &key, 5).await;
        }
        for value in &values {
            bench.left("of a key that took all", policy, &Key::from_bytes(value), 0).await;
        }
    }
}

/// A caller who writes his key himself must not reach another's.
pub(super) async fn what_ends_a_key_does_not_begin_a_policy<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let named = |name: &str| Policy::new(name, Quota::new(5, Duration::from_micros(WINDOW)));
    for between in [":", "~", "/", "|", "-", ".", "}:", "%"] {
        let pairs = [
            (Key::from(&*format!("somebody{between}api")), named("burst")),
            (Key::from("somebody"), named(&format!("api{between}burst"))),
        ];
        for (key, policy) in &pairs {
            bench.left(&format!("of {key:?}"), policy, key, 5).await;
            bench.must_take(policy, key, 5).await;
            bench.denied(policy, key, 1).await;
        }
        for (key, policy) in &pairs {
            bench.reset(key, &[policy]).await;
        }
    }
}

pub(super) async fn clones_share_their_state<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    let clone = Bench::new("keys::clones_share_their_state", 0, bench.store.clone(), bench.time.clone());
    for policy in plain() {
        bench.must_take(&policy, &key, 3).await;
        clone.left("by the clone", &policy, &key, 2).await;
        let stamp = clone.must_take(&policy, &key, 2).await;
        bench.denied(&policy, &key, 1).await;
        bench.refund(&policy, &key, 2, stamp).await;
        clone.left("by the clone after a refund", &policy, &key, 2).await;
        clone.reset(&key, &[&policy]).await;
        bench.left("after a reset by the clone", &policy, &key, 5).await;
    }
}

pub(super) async fn a_reset_forgets_the_key_under_these_policies_only<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let (key, other) = (Key::from("somebody"), Key::from("somebody else"));
    let policies = plain();
    bench.reset(&key, &[&policies[0]]).await;
    for policy in &policies {
        bench.must_take(policy, &key, 5).await;
        bench.must_take(policy, &other, 5).await;
    }
    bench.reset(&key, &[]).await;
    let (first, rest) = policies.split_at(1);
    bench.reset(&key, &rest.iter().collect::<Vec<_>>()).await;
    for policy in rest {
        bench.left("after a reset", policy, &key, 5).await;
        bench.same("its reset", bench.look(policy, &key, 1).await.reset_after(), Duration::ZERO);
        bench.must_take(policy, &key, 5).await;
        bench.left("of another key", policy, &other, 0).await;
    }
    bench.left("of a policy that was not named", &first[0], &key, 0).await;
}
