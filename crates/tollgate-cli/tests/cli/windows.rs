//! `--threshold`, and the plots.

use std::path::PathBuf;

use crate::playground::Playground;
use crate::run::{load, tollgate};

#[test]
fn a_window_over_the_threshold_is_named_with_exit_code_1() {
    for (kind, window) in [("sliding", "1h"), ("aligned", "366d")] {
        let playground = Playground::start("api=50/d,algorithm=fixed-window");
        let url = playground.url("/");
        let windows = ["--window", window, "--windows", kind];
        let over = [&["load", &url, "-n", "200", "--threshold", "49"], &windows[..]].concat();
        let ran = tollgate(&over);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(1), 1), "{ran:?}");
        assert!(ran.stderr.starts_with("error: the window from "), "{}", ran.stderr);
        let end = "admitted 50 requests of key 1, over the threshold of 49\n";
        assert!(ran.stderr.ends_with(end), "{}", ran.stderr);
        assert!(ran.stdout.contains("at most 50, threshold 49"), "{}", ran.stdout);
        assert!(ran.stdout.contains('░'), "no bar exceeds the threshold: {}", ran.stdout);
        assert_eq!(ran.counts(), (50, 150, 0));
    }
}

#[test]
fn windows_within_the_threshold_exit_with_0() {
    let playground = Playground::start("api=50/d,algorithm=fixed-window");
    let ran = load(&[&playground.url("/"), "-n", "200", "--threshold", "50", "--window", "1h"]);
    assert!(ran.stdout.contains("at most 50, threshold 50"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('░'), "{}", ran.stdout);
}

#[test]
fn the_threshold_is_for_each_key_by_itself() {
    let playground = Playground::start("user=20/d,algorithm=fixed-window,key=header:x-user");
    let url = playground.url("/");
    let keys = ["--keys", "3", "-H", "x-user: {key}", "-n", "500", "--window", "1h"];
    load(&[&[&url[..], "--threshold", "20"], &keys[..]].concat());
    let again = Playground::start("user=20/d,algorithm=fixed-window,key=header:x-user");
    let url = again.url("/");
    let ran = tollgate(&[&["load", &url, "--threshold", "19"], &keys[..]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.ends_with("over the threshold of 19; 3 keys exceeded it\n"), "{}", ran.stderr);
}

/// A sliding log admits its limit in any window, wherever the window begins.
#[test]
fn a_sliding_log_never_exceeds_its_limit_in_any_window() {
    let playground = Playground::start("api=20/500ms,algorithm=sliding-log");
    let url = playground.url("/");
    let ran = load(&[&url, "--duration", "3s", "--threshold", "20", "--window", "500ms"]);
    assert!(ran.counts().0 > 20, "only one window: {}", ran.stdout);
}

#[test]
fn the_plot_is_a_picture_with_the_threshold() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("load.svg");
    let playground = Playground::start("api=50/d,algorithm=fixed-window");
    let path = file.to_str().unwrap();
    load(&[&playground.url("/"), "-n", "200", "--threshold", "60", "--plot", path]);
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for text in ["threshold", "admitted", "Requests of key 1"] {
        assert!(svg.contains(text), "no {text}");
    }
    assert!(svg.matches("<polyline").count() >= 2 && svg.len() < 200_000, "{} bytes", svg.len());
}
