//! Versions of a bucket: what is stored of them.

use tollgate::{Policy, Quota};
use tollgate_test_servers::Kind;

use crate::redis::{Fresh, acquire, shared, try_acquire};

fn version(limit: u64, burst: u64) -> Policy {
    Policy::new("api", Quota::per_hour(limit).burst(burst))
}

/// The entries of a record.
fn entries(record: &str) -> Vec<String> {
    assert!(record.len() > 84 && (record.len() - 33).is_multiple_of(52), "{record}");
    let digits = &record.as_bytes()[17..record.len() - 16];
    digits.chunks(52).map(|entry| String::from_utf8(entry.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn rotating_versions_have_four_entries_and_a_refusal_adds_one() {
    for &kind in Kind::EVERY {
        let (server, fresh) = (shared(kind), Fresh::on(shared(kind)).await);
        acquire(&fresh.store, &version(10, 100), "ada", 100).await;
        let name = fresh.name(&version(10, 100), "ada");
        let mut before = Vec::new();
        for n in 0..300 {
            let refused = try_acquire(&fresh.store, &version(60 + n % 97, 1 + n % 7), "ada", 8).await;
            assert!(!refused.unwrap().is_granted());
            let refused = try_acquire(&fresh.store, &version(60 + n % 97, 10 + n % 89), "ada", 9).await;
            assert!(!refused.unwrap().is_granted(), "{n} on {kind}");
            let now = entries(&server.command(&["GET", &name]).unwrap());
            let changed = now.iter().filter(|entry| !before.contains(*entry)).count();
            assert!(now.len() <= 4 && changed <= 2, "{n} on {kind}: {before:?}, {now:?}");
            before = now;
        }
    }
}

/// An older version of this library reads the last 16 digits as the TAT, and what stands before
/// them as a fraction.
#[tokio::test]
async fn a_record_ends_with_its_latest_tat_for_older_libraries() {
    for &kind in Kind::EVERY {
        let (server, fresh) = (shared(kind), Fresh::on(shared(kind)).await);
        let (old, new) = (version(10, 50), version(600, 50));
        acquire(&fresh.store, &old, "ada", 50).await;
        let name = fresh.name(&old, "ada");
        let tat = server.command(&["GET", &name]).unwrap();
        assert!(!try_acquire(&fresh.store, &new, "ada", 1).await.unwrap().is_granted());
        let record = server.command(&["GET", &name]).unwrap();
        assert_eq!((record.len(), record.ends_with(&tat)), (85, true), "{record} on {kind}");
        let ends: i64 = server.command(&["PTTL", &name]).unwrap().parse().unwrap();
        assert!(ends > 4 * 3_600_000, "it lives until the latest bucket is full: {ends} ms on {kind}");
    }
}
