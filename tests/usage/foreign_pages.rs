//! Pages that no recorder has written: a query reads what it can of them.

use tollgate::usage::top_keys::{KeyUsage, MemoryLog, TopKeys, UsageLog, UsageOf};
use tollgate_tests::clock;

use crate::usage::{HOUR, MINUTE};

/// A log with these pages of the current minute.
async fn log_of(pages: &[&str]) -> TopKeys<MemoryLog> {
    let (time, log) = (clock(), MemoryLog::new());
    let minute = time.now().as_micros() / 60_000_000;
    for (process, page) in (0..).zip(pages) {
        log.write(minute, process, page, HOUR).await.unwrap();
    }
    TopKeys::new(log).clock(&time)
}

fn bounds(top: &[KeyUsage]) -> Vec<(&str, &str, u64, u64, u64)> {
    top.iter().map(|of| (&*of.policy, &*of.key, of.at_least, of.count, of.at_most)).collect()
}

#[tokio::test]
async fn a_key_that_a_page_lists_twice_has_the_floors_of_other_pages() {
    let usage = log_of(&[
        "floor\t5\t0\npolicy\t20\t0\tapi\nallowed\t9\t0\t0\t=ada\nallowed\t8\t0\t0\t=ada\n",
        "floor\t3\t0\npolicy\t20\t0\tapi\nallowed\t9\t0\t0\t=bob\n",
    ])
    .await;
    let top = usage.top_allowed(5, MINUTE).await.unwrap();
    assert_eq!(bounds(&top), [("api", "=ada", 17, 17, 20), ("api", "=bob", 9, 9, 14)]);
}

#[tokio::test]
async fn the_numbers_of_a_query_do_not_overflow() {
    let line = "allowed\t4294967295\t0\t0\t=ada\n";
    let page = format!("one-in\t65536\nfloor\t4294967295\t0\npolicy\t20\t0\tapi\n{}", line.repeat(70_000));
    let usage = log_of(&[&*page; 3]).await;
    let top = usage.top_allowed(5, MINUTE).await.unwrap();
    let [ada] = &top[..] else { panic!("{top:?}") };
    assert!(ada.at_least < ada.count && ada.count < ada.at_most, "{ada:?}");
    let lines = ada.count / 3 / u64::from(u32::MAX);
    assert!((20_000..70_000).contains(&lines), "{lines} lines were read of a page");
    let minutes = usage.series(UsageOf::Key(&"ada".into()), MINUTE).await.unwrap();
    assert_eq!(minutes[0].allowed, ada.count);
}

#[tokio::test]
async fn a_policy_line_of_another_form_leaves_the_numbers_of_the_others() {
    let usage =
        log_of(&["policy\tx\t0\tweb\npolicy\t9\t0\tapi\nallowed\t9\t0\t1\t=ada\nallowed\t3\t0\t0\t=eve\n"])
            .await;
    let top = usage.top_allowed(5, MINUTE).await.unwrap();
    assert_eq!(bounds(&top), [("api", "=ada", 9, 9, 9)]);
}

#[tokio::test]
async fn sampled_floors_add_their_standard_deviations_to_the_most() {
    let usage = log_of(&[
        "one-in\t16\nfloor\t7\t0\npolicy\t20\t0\tapi\nallowed\t100\t0\t0\t=ada\n",
        "one-in\t16\nfloor\t60\t0\npolicy\t20\t0\tapi\n",
        "one-in\t1\nfloor\t9\t0\npolicy\t20\t0\tapi\n",
    ])
    .await;
    let top = usage.top_allowed(5, MINUTE).await.unwrap();
    // Of 653 decisions, 653 - 5 × √(15 × 653) = 158 are counted at least.
    assert_eq!(bounds(&top), [("api", "=ada", 0, 100, 653 + 9)]);
}
