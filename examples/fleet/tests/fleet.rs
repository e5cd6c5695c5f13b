//! Runs the simulator of fleets as its users do, by command line.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

use std::path::PathBuf;
use std::process::{Command, Output};

/// Small, and above the limit.
const SMALL: [&str; 10] =
    ["--nodes", "5", "--rate", "10000", "--seconds", "2", "--lease", "50/100ms", "--limit", "4000/s"];

fn fleet(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fleet")).args(options).output().unwrap()
}

/// The cells of the table: a row for exact, leased and local share.
fn table(options: &[&str]) -> Vec<Vec<String>> {
    let Output { status, stdout, stderr } = fleet(&[&SMALL[..], options].concat());
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{options:?}: {stderr}");
    let rows = stdout.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    let names: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["exact", "leased", "local share"], "{stdout}");
    rows
}

fn number(cell: &str) -> f64 {
    cell.parse().unwrap_or_else(|_| panic!("{cell:?} is not a number"))
}

#[test]
fn exact_is_never_over_and_leased_keeps_its_bound() {
    let faults = "crashes=5,lost=2%,slow=5%,partition=2%";
    for algorithm in ["gcra", "fixed-window", "sliding-window", "sliding-buckets", "sliding-log"] {
        for load in ["even", "skewed"] {
            let rows = table(&["--algorithm", algorithm, "--load", load, "--joins", "3", "--faults", faults]);
            let [exact, leased, local] = rows.as_slice() else { unreachable!("three names") };
            let described = format!("{algorithm} {load}: {rows:?}");
            assert!(number(&exact[1]) > 5_000.0 && number(&leased[1]) > 1_000.0, "{described}");
            assert_eq!(number(&exact[2]), 0.0, "over: {described}");
            assert!(number(&exact[6]) <= 1.0 && number(&leased[6]) <= 1.0, "{described}");
            assert!(number(&exact[6]) > 0.5 && number(&leased[6]) > 0.2, "near no bound: {described}");
            assert!(number(&leased[4]) > 0.0, "nothing was leased: {described}");
            assert!(number(&leased[5]) < number(&exact[5]), "no round trip is saved: {described}");
            assert_eq!(number(&local[5]), 0.0, "{described}");
        }
    }
}

#[test]
fn leased_fixed_windows_are_never_over() {
    let rows = table(&["--algorithm", "fixed-window", "--faults", "crashes=20,lost=5%"]);
    assert_eq!((rows[0][2].as_str(), rows[1][2].as_str()), ("0", "0"), "{rows:?}");
}

#[test]
fn runs_with_one_seed_are_the_same() {
    let run = |seed| table(&["--seed", seed, "--faults", "crashes=5,slow=5%"]);
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn a_plot_is_a_picture_with_all_lines() {
    for algorithm in ["gcra", "fixed-window", "sliding-log"] {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fleet-{algorithm}.svg"));
        table(&["--algorithm", algorithm, "--plot", file.to_str().unwrap()]);
        let svg = std::fs::read_to_string(&file).unwrap();
        assert_well_formed(&svg);
        for label in ["exact", "leased", "local share", "limit", "bound of leases", "seconds"] {
            assert!(svg.contains(label), "{algorithm}: no {label}");
        }
        assert!(svg.matches("<polyline").count() >= 5, "{algorithm}: lines are missing");
        assert!((5_000..200_000).contains(&svg.len()), "{algorithm}: {} bytes", svg.len());
    }
}

/// Every element is closed, in order, and the outermost one is `svg`.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        match tag {
            _ if tag.starts_with('?') || tag.starts_with('!') || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{tag}"),
            _ => {
                assert!(name == "svg" || open.first() == Some(&"svg"), "{name} is outside of the picture");
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

#[test]
fn a_bad_argument_is_one_error_line() {
    for (options, hint) in [
        (["--nodes", "0"], "--nodes"),
        (["--nodes", "many"], "--nodes"),
        (["--rate", "0"], "--rate"),
        (["--limit", "0/s"], "--limit"),
        (["--limit", "100"], "must be a number and a window, such as 10000/s"),
        (["--limit", "100/0s"], "--limit"),
        (["--burst", "0"], "--burst"),
        (["--lease", "0/1s"], "at least 1 unit"),
        (["--lease", "64"], "must be a number of units and a time"),
        (["--lease", "64/2h"], "a lease must last 1 ms to 60s"),
        (["--algorithm", "leaky-bucket"], "possible values: gcra, fixed-window"),
        (["--load", "odd"], "possible values: skewed, even"),
        (["--round-trip", "1"], "must be a time up to 1s, such as 1ms"),
        (["--round-trip", "1h"], "must be a time up to 1s, such as 1ms"),
        (["--faults", "fire"], "\"fire\" is not a fault: use none, or crashes, lost, slow, partition"),
        (["--faults", "slow=5"], "slow must be 0% to 100%"),
        (["--faults", "lost=101%"], "lost must be 0% to 100%"),
        (["--faults", "crashes=-1"], "crashes must be a number of processes"),
        (["--seconds", "0"], "--seconds"),
        (["--seed", "x"], "--seed"),
        (["stray", "other"], "stray"),
    ] {
        let Output { status, stdout, stderr } = fleet(&options);
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{options:?}: {stderr}");
        assert!(stdout.is_empty(), "{options:?}");
        assert_eq!(stderr.lines().count(), 1, "{options:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(hint), "{options:?}: {stderr}");
    }
    let burst = fleet(&["--algorithm", "fixed-window", "--burst", "5"]);
    let stderr = String::from_utf8(burst.stderr).unwrap();
    assert!(burst.status.code() == Some(2) && stderr.contains("burst has no meaning"), "{stderr}");
}

#[test]
fn a_plot_that_cannot_be_written_fails_with_its_path() {
    let options = [&SMALL[..], &["--plot", "/no/such/directory/fleet.svg"]].concat();
    let Output { status, stderr, .. } = fleet(&options);
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: --plot: cannot write /no/such/directory/fleet.svg: "), "{stderr}");
}
