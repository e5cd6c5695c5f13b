//! Cases of keys, scopes and resets.

use std::net::IpAddr;
use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota};

use super::case::{Case, WINDOW, plain};

pub(super) async fn keys_do_not_share_a_quota(case: &Case) {
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
            case.left("of another key", &policy, key, 5).await;
            case.must_take(&policy, key, 5).await;
            case.denied(&policy, key, 1).await;
        }
    }
}

pub(super) async fn policies_of_another_name_window_or_algorithm_do_not_share_a_quota(case: &Case) {
    let key = Key::from("caller");
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
        case.left(&format!("of {}", policy.scope()), policy, &key, 5).await;
        case.must_take(policy, &key, 5).await;
    }
    for policy in &policies {
        case.left(&format!("of {}", policy.scope()), policy, &key, 0).await;
    }
}

pub(super) async fn long_and_binary_keys_stay_distinct(case: &Case) {
    let mut long = vec![b'x'; 10_000];
    let mut values = vec![long.clone()];
    // Differs in the last byte, the first byte, or the length.
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
    // "a" and "ä" occur twice.
    values.sort();
    values.dedup();
    let policies = plain();
    for policy in [&policies[0], &policies[2]] {
        for value in &values {
            let key = Key::from_bytes(value);
            case.left("of an unused key", policy, &key, 5).await;
            case.must_take(policy, &key, 5).await;
        }
        for value in &values {
            case.left("of a key with no units left", policy, &Key::from_bytes(value), 0).await;
        }
    }
}

/// A caller that chooses its own key must not reach another caller's state.
pub(super) async fn a_separator_in_a_key_does_not_reach_another_policy(case: &Case) {
    let named = |name: &str| Policy::new(name, Quota::new(5, Duration::from_micros(WINDOW)));
    for between in [":", "~", "/", "|", "-", ".", "}:", "%"] {
        let pairs = [
            (Key::from(&*format!("caller{between}api")), named("burst")),
            (Key::from("caller"), named(&format!("api{between}burst"))),
        ];
        for (key, policy) in &pairs {
            case.left(&format!("of {key:?}"), policy, key, 5).await;
            case.must_take(policy, key, 5).await;
            case.denied(policy, key, 1).await;
        }
        for (key, policy) in &pairs {
            case.reset(key, &[policy]).await;
        }
    }
}

pub(super) async fn the_empty_key_is_a_key_like_any_other(case: &Case) {
    for policy in plain() {
        case.must_take(&policy, &Key::from(""), 5).await;
        case.left("of the empty key", &policy, &Key::from(""), 0).await;
        case.left("of another key", &policy, &Key::from("-"), 5).await;
    }
}

pub(super) async fn clones_share_their_state(case: &Case) {
    let key = Key::from("caller");
    let clone = Case::new("keys::clones_share_their_state", 0, case.store.cloned(), case.time.clone());
    for policy in plain() {
        case.must_take(&policy, &key, 3).await;
        clone.left("by the clone", &policy, &key, 2).await;
        let stamp = clone.must_take(&policy, &key, 2).await;
        case.denied(&policy, &key, 1).await;
        case.refund(&policy, &key, 2, stamp).await;
        clone.left("by the clone after a refund", &policy, &key, 2).await;
        clone.reset(&key, &[&policy]).await;
        case.left("after a reset by the clone", &policy, &key, 5).await;
    }
}

pub(super) async fn a_reset_forgets_the_key_under_these_policies_only(case: &Case) {
    let (key, other) = (Key::from("caller"), Key::from("other caller"));
    let policies = plain();
    case.reset(&key, &[&policies[0]]).await;
    for policy in &policies {
        case.must_take(policy, &key, 5).await;
        case.must_take(policy, &other, 5).await;
    }
    case.reset(&key, &[]).await;
    let (first, rest) = policies.split_at(1);
    case.reset(&key, &rest.iter().collect::<Vec<_>>()).await;
    for policy in rest {
        case.left("after a reset", policy, &key, 5).await;
        case.same("its reset", case.look(policy, &key, 1).await.reset_after(), Duration::ZERO);
        case.must_take(policy, &key, 5).await;
        case.left("of another key", policy, &other, 0).await;
    }
    case.left("of a policy that was not named", &first[0], &key, 0).await;
}
