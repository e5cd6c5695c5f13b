//! Foreign values under the names of the store's keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::store::{Grant, Stamp, Store};
use tollgate::{Algorithm, Key, Policy, Quota, Wait};
use tollgate_redis::SlidingLogLayout;
use tollgate_test_servers::{Kind, Server};

use crate::redis::{BothLayouts, Fresh, acquire, every_policy, longest, look, shared, try_acquire};

const LIMIT: u64 = 4;
const WINDOW: Duration = Duration::from_millis(400);
const YEAR_US: u64 = 365 * 86_400_000_000;

/// The commands that put something at a key's place; `KEY` stands for its name.
fn poisons(policy: &Policy, now: u64) -> Vec<Vec<String>> {
    let digits = "9".repeat(400);
    let many_digits = "7".repeat(1 << 20);
    let ahead = (now + YEAR_US).to_string();
    let mut texts = vec![
        "abc",
        "nan",
        "-nan",
        "inf",
        "-inf",
        "0x10",
        "1e16",
        "-5",
        " 12",
        "12 ",
        "+7",
        "",
        "0",
        "00",
        "1",
        "12345",
        "1.5",
        "9007199254740993",
        "9223372036854775807",
        "18446744073709551616",
        "12\n",
        "12\0",
        "\0\u{1}é\r\n",
        &digits,
        &many_digits,
        &ahead,
    ];
    // Counts above a `u32`, and above what a double holds, before a time of now.
    let times: Vec<String> = ["4294967295", "4294967296", "99999999999999999999", "0000000004", "-1", "0x"]
        .iter()
        .flat_map(|count| {
            [format!("{count}{now}"), format!("{count}{ahead}"), format!("{count}4294967295{now}")]
        })
        .collect();
    texts.extend(times.iter().map(String::as_str));
    let mut poisons: Vec<Vec<String>> =
        texts.iter().map(|text| vec!["SET".to_owned(), "KEY".to_owned(), (*text).to_owned()]).collect();
    let mut other = |words: &[&str]| {
        poisons.push(words.iter().map(|word| (*word).to_owned()).collect());
    };
    let now_text = now.to_string();
    other(&["SADD", "KEY", "a", "b"]);
    other(&["XADD", "KEY", "*", "a", "b"]);
    for garbage in ["abc", "nan", "inf", "-5", "1.5", "", &digits, &ahead, "0"] {
        other(&["RPUSH", "KEY", garbage]);
        // Between entries that are in order, and behind them.
        other(&["RPUSH", "KEY", &now_text, garbage, &now_text]);
        other(&["RPUSH", "KEY", garbage, garbage, garbage, garbage, &now_text]);
        other(&["RPUSH", "KEY", &now_text, &now_text, &now_text, &now_text, garbage]);
    }
    // A log of runs, and a head before it, with wrong numbers.
    let current_text = (now / 40_000).to_string();
    let counts = [
        "0",
        "3",
        "4-1",
        "4-9999",
        "0-4",
        "-4",
        "4-",
        "abc",
        "4-x",
        "9007199254740993",
        &digits,
        "4-9007199254740993",
    ];
    for count in counts {
        for time in [&now_text, &current_text, &ahead] {
            other(&["RPUSH", "KEY", time, count]);
            other(&["RPUSH", "KEY", "-1", "7-1", time, count, time, count, time, "9"]);
            other(&["RPUSH", "KEY", "-1", count, time, "8", time, "9-1", time, "10"]);
            other(&["ZADD", "KEY", time, count]);
            other(&["ZADD", "KEY", "-1", count, time, "8", time, "9-1", time, "99"]);
        }
    }
    for score in ["1.5", "-inf", "inf", "-5", "1e300", &ahead, &now_text] {
        other(&["ZADD", "KEY", score, "abc"]);
        other(&["ZADD", "KEY", score, "abc", &now_text, "x", &now_text, "y", &now_text, "z-99999999999999"]);
    }
    let span = match policy.algorithm() {
        Algorithm::SlidingBuckets { buckets } => {
            u64::try_from(policy.quota().window().as_micros()).unwrap().div_ceil(buckets.into())
        }
        _ => 1_000,
    };
    // The current sub-window, or the next one.
    let current = ((now + 20_000) / span).to_string();
    for garbage in
        ["abc", "nan", "-nan", "inf", "0x10", "-5", "1.5", "", &digits, &ahead, "9223372036854775807"]
    {
        for n in [&current, garbage] {
            for (p, s) in [("0", "1"), (garbage, "1"), ("0", garbage), (garbage, garbage)] {
                let mut words = vec!["HSET", "KEY", "n", n, "p", p, "s", s];
                let places: Vec<String> = (0..11).map(|place| place.to_string()).collect();
                for place in &places {
                    words.extend([place.as_str(), garbage]);
                }
                other(&words);
            }
        }
    }
    other(&["HSET", "KEY", "n", &current, "p", "0", "s", "4294967296"]);
    other(&["HSET", "KEY", "n", &current, "p", "99", "s", "4", "0", "4"]);
    other(&["HSET", "KEY", "abc", "def"]);
    poisons
}

fn now(server: &Server) -> u64 {
    let time = server.command(&["TIME"]).unwrap();
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

/// What is wrong with the life of a key: it has no end, or one that is too far away. A missing key
/// is fine.
fn endless(server: &Server, name: &str, policy: &Policy) -> Option<String> {
    let left: i64 = server.command(&["PTTL", name]).unwrap().parse().unwrap();
    let most = longest(policy) + Duration::from_millis(1_010);
    let is_well = left != -1 && left <= i64::try_from(most.as_millis()).unwrap();
    (!is_well).then(|| format!("{left} ms to live"))
}

/// Puts a foreign value at a key's place and uses the key. Returns an error if a request fails, if
/// a wait is longer than the policy remembers anything, or if the whole quota does not come back.
async fn heals(
    server: &Server,
    fresh: &Fresh,
    policy: &Policy,
    key: &str,
    poison: &[String],
    denied_first: bool,
) -> Result<(), String> {
    let name = fresh.name(policy, key);
    let words: Vec<&str> =
        poison.iter().map(|word| if word == "KEY" { name.as_str() } else { word }).collect();
    // A few at a time, because each refund needs one of the two connections.
    static FEW: Semaphore = Semaphore::const_new(8);
    let few = FEW.acquire().await.unwrap();
    server.command(&words).unwrap();
    // A refund of a grant from before, which finds the foreign value.
    let stamp = Stamp::new(now(server), 0);
    let grant = Grant { policy, key: &Key::from(key), units: 1, stamp, share: None };
    fresh.store.refund(&[grant]).await.map_err(|error| format!("a refund: {error}"))?;
    drop(few);
    let ask = async |cost| {
        let verdict =
            try_acquire(&fresh.store, policy, key, cost).await.map_err(|error| error.to_string())?;
        if let Some(wrong) = endless(server, &name, policy) {
            return Err(wrong);
        }
        let reset = verdict.each()[0].reset_after();
        let wait = if let Wait::For(wait) = verdict.wait() { wait } else { Duration::ZERO };
        if reset.max(wait) > longest(policy) {
            return Err(format!("a wait of {wait:?}, a reset after {reset:?}"));
        }
        Ok(verdict)
    };
    if denied_first && ask(u64::MAX).await?.wait() != Wait::Never {
        return Err("what can never pass is not told so".to_owned());
    }
    for cost in [1, LIMIT] {
        let mut patience = 3;
        while let Wait::For(wait) = ask(cost).await?.wait() {
            if patience == 0 {
                return Err(format!("locked out, with a wait of {wait:?}"));
            }
            patience -= 1;
            sleep(wait).await;
        }
    }
    Ok(())
}

/// The values of a policy are used at the same time. In one call they would fail together.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_foreign_value_fails_no_request_and_blocks_no_caller() {
    let mut asked = JoinSet::new();
    for (n, (policy, layout)) in every_policy(LIMIT, WINDOW).into_iter().enumerate() {
        for denied_first in [false, true] {
            let server = shared(Kind::EVERY[(n + usize::from(denied_first)) % Kind::EVERY.len()]);
            let fresh = Arc::new(Fresh::with(server, layout, |builder| builder).await);
            for (n, poison) in poisons(&policy, now(server)).into_iter().enumerate() {
                let (policy, fresh) = (policy.clone(), Arc::clone(&fresh));
                asked.spawn(async move {
                    let key = format!("{n}");
                    let healed = heals(server, &fresh, &policy, &key, &poison, denied_first).await;
                    healed.err().map(|error| {
                        let poison: String = poison.join(" ").chars().take(200).collect();
                        format!("{error}: {} {layout:?} on {}: {poison:?}", policy.name(), server.kind())
                    })
                });
            }
        }
    }
    let wrong: Vec<String> = asked.join_all().await.into_iter().flatten().collect();
    assert!(
        wrong.is_empty(),
        "{} values, among them\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
}

/// The key lost its end, by hand or by a restore. A bucket sets the end at most once in 0.9 s of
/// its TAT; with these quotas each charge does.
#[tokio::test]
async fn a_key_without_an_end_gets_one_by_a_charge_and_by_a_denial() {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let stores = BothLayouts::on(server).await;
        for (policy, layout) in every_policy(LIMIT, Duration::from_secs(600)) {
            let fresh = stores.of(layout);
            let name = fresh.name(&policy, "ada");
            let mut is_granted = true;
            while is_granted {
                is_granted = acquire(&fresh.store, &policy, "ada", 1).await.is_granted();
                assert_eq!(endless(server, &name, &policy), None, "{name}");
                assert_eq!(server.command(&["PERSIST", &name]).unwrap(), "1", "{name}");
            }
            // The last request was denied, and it set the end that was missing.
            assert!(!acquire(&fresh.store, &policy, "ada", 1).await.is_granted());
            let left: i64 = server.command(&["PTTL", &name]).unwrap().parse().unwrap();
            let reset = look(&fresh.store, &policy, "ada").await.each()[0].reset_after();
            assert!(left >= i64::try_from(reset.as_millis()).unwrap(), "{name} is forgotten early");
        }
    }
}

/// A denial sets the end of the state that is stored, not of a charge made now.
#[tokio::test]
async fn a_key_without_an_end_that_is_denied_lives_no_longer_than_its_state() {
    let mut asked = JoinSet::new();
    for &kind in Kind::EVERY {
        let server = shared(kind);
        for (policy, layout) in every_policy(LIMIT, Duration::from_secs(20)) {
            asked.spawn(async move {
                let fresh = Fresh::with(server, layout, |builder| builder).await;
                let name = fresh.name(&policy, "ada");
                assert!(acquire(&fresh.store, &policy, "ada", LIMIT).await.is_granted());
                // Longer than a sub-window of a ring.
                sleep(Duration::from_millis(2_500)).await;
                server.command(&["PERSIST", &name]).unwrap();
                // If a window has ended meanwhile, this is granted in a new one.
                acquire(&fresh.store, &policy, "ada", LIMIT).await;
                let asked = Instant::now();
                let left: i64 = server.command(&["PTTL", &name]).unwrap().parse().unwrap();
                let reset = look(&fresh.store, &policy, "ada").await.each()[0].reset_after();
                let life = reset.as_millis()..=(reset + asked.elapsed()).as_millis() + 1_002;
                match u128::try_from(left) {
                    Ok(left) => assert!(life.contains(&left), "{name} on {kind}: {left} ms for {life:?}"),
                    // An aligned window ended since the denial, and the key with it.
                    Err(_) => assert_eq!((left, reset), (-2, Duration::ZERO), "{name} on {kind}"),
                }
            });
        }
    }
    asked.join_all().await;
}

/// A clock that ran ahead wrote it, or a policy with a larger burst. It counts as an empty bucket,
/// and the script writes that at once. Otherwise each denied caller would have to wait again.
#[tokio::test]
async fn a_tat_of_next_year_is_an_empty_bucket_at_once() {
    let server = shared(Kind::Redis6_2);
    let span = Duration::from_secs(600);
    let policies = every_policy(LIMIT, span);
    for (policy, layout) in &policies[..3] {
        let fresh = Fresh::with(server, *layout, |builder| builder).await;
        let name = fresh.name(policy, "ada");
        let ahead = now(server) + YEAR_US;
        for value in [ahead.to_string(), format!("7{ahead}"), format!("4294967296{ahead}")] {
            server.command(&["SET", &name, &value, "PX", "99999999999"]).unwrap();
            let before = now(server);
            let denied = acquire(&fresh.store, policy, "ada", 1).await;
            assert!(!denied.is_granted());
            let Wait::For(wait) = denied.wait() else { panic!("{denied:?}") };
            assert_eq!(wait, span / u32::try_from(LIMIT).unwrap(), "the wait for one of an empty bucket");
            let stored: u64 = server.command(&["GET", &name]).unwrap().parse().unwrap();
            let most = u64::try_from(longest(policy).as_micros()).unwrap();
            assert!((before + most..=now(server) + most).contains(&stored), "{stored}");
            assert_eq!(endless(server, &name, policy), None, "{name}");
        }
    }
}

/// `tostring` and `..` make 1.76e+15 of a time.
#[tokio::test]
async fn stored_values_are_digits_only() {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let stores = BothLayouts::on(server).await;
        // Fractions of a microsecond, and counts that exceed 2^53 together with the time.
        for limit in [7, 9_991] {
            for (policy, layout) in every_policy(limit, Duration::from_secs(36_000)) {
                let fresh = stores.of(layout);
                for cost in [1, limit / 3, 1] {
                    acquire(&fresh.store, &policy, "ada", cost).await;
                }
                let name = fresh.name(&policy, "ada");
                let stored = match (policy.algorithm(), layout) {
                    (Algorithm::SlidingBuckets { .. }, _)
                    | (Algorithm::SlidingLog { .. }, SlidingLogLayout::List) => {
                        server.command(&["LRANGE", &name, "0", "99"])
                    }
                    (Algorithm::SlidingLog { .. }, _) => server
                        .command(&["ZRANGE", &name, "0", "99"])
                        .map(|members| members.replace('-', "\n")),
                    _ => server.command(&["GET", &name]),
                };
                let stored = stored.unwrap();
                let is_digits =
                    |line: &str| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
                assert!(!stored.is_empty() && stored.lines().all(is_digits), "{name} on {kind}: {stored}");
            }
        }
    }
}

/// A limit that changed in place, or tiers of one rule. The stored fraction has another
/// denominator, and is too large to increment in place.
#[tokio::test]
async fn a_state_of_another_limit_is_charged_in_its_place() {
    let old = Policy::new("api", Quota::per_second(999));
    let new = Policy::new("api", Quota::per_second(1_000));
    assert_eq!(old.scope(), new.scope());
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let fresh = Fresh::on(server).await;
        // T is 1001 + 1/999 µs, so the fraction is 923/999. As digits before TAT it is too large
        // for an integer.
        assert!(acquire(&fresh.store, &old, "ada", 923).await.is_granted());
        let left = acquire(&fresh.store, &new, "ada", 1).await;
        assert!(left.is_granted(), "{kind}");
        // At least that many, and those that came back meanwhile.
        assert!(left.each()[0].remaining() >= 1_000 - 925, "{kind}: {left:?}");
        assert!(acquire(&fresh.store, &new, "ada", 1).await.is_granted(), "{kind}");
    }
}
