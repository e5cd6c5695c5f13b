//! Processes whose clocks differ, over one Redis.

use std::thread::{self, sleep};
use std::time::Duration;

use tollgate_test_servers::{Cluster, Kind, Server};

use crate::calendar::process_control::{Answer, Process};

const LIMIT: u64 = 6;

const HOUR: u64 = 3_600_000_000;

/// Longer than the processes need to start and to ask, also on a busy machine.
const UNTIL_THE_NEXT: u64 = 20_000_000;

/// How far the clocks of the processes are ahead, in seconds. The last two are wrong by more than a
/// window.
const CLOCKS: [i64; 5] = [0, 300, -300, 86_400, -86_400];

/// The server's time, in microseconds since the epoch.
fn now(server: &Server) -> u64 {
    let time = server.command(&["TIME"]).unwrap();
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

/// Each process asks in turn, twice as often as the limit allows.
fn ask_in_turn(processes: &mut [Process]) -> Vec<Answer> {
    let rounds = 2 * usize::try_from(LIMIT).unwrap();
    (0..rounds).flat_map(|_| processes.iter_mut().map(Process::ask).collect::<Vec<_>>()).collect()
}

/// The whole quota, by the window that ends at `end`, and then only denials.
fn is_one_quota_of(end: u64, answers: &[Answer]) -> bool {
    let granted = usize::try_from(LIMIT).unwrap();
    answers[..granted].iter().all(|answer| *answer == Answer::Granted(end))
        && answers[granted..].iter().all(|answer| matches!(answer, Answer::Denied(_)))
}

#[test]
fn a_fleet_whose_clocks_differ_changes_the_window_once() {
    thread::scope(|scope| {
        for &kind in Kind::EVERY {
            scope.spawn(move || {
                let server = Server::start(kind).unwrap();
                changes_the_window_once(&server.url(), &server);
            });
        }
    });
}

/// A process knows nothing of the time of a slot before its first reply. Without a Cluster it has
/// one from the beginning, since it tries the server out when it connects.
#[test]
fn a_fleet_whose_clocks_differ_changes_the_window_once_in_a_cluster() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let nodes: Vec<String> =
        cluster.nodes().iter().map(Server::address).map(|node| node.to_string()).collect();
    changes_the_window_once(&format!("redis-cluster://{}", nodes.join(",")), &cluster.nodes()[0]);
}

fn changes_the_window_once(url: &str, server: &Server) {
    let starts = now(server) + UNTIL_THE_NEXT;
    let boundaries: Vec<u64> = (0..5).map(|n| starts - 2 * HOUR + n * HOUR).collect();
    let start = |ahead: &i64| Process::start(url, LIMIT, &boundaries, *ahead);
    let mut processes: Vec<_> = CLOCKS.iter().map(start).collect();
    let before = ask_in_turn(&mut processes);
    // The first calls of processes that know no time of the server yet.
    let fresh: Vec<_> = CLOCKS.iter().map(|ahead| start(ahead).ask()).collect();
    assert!(now(server) < starts, "the machine is too slow for this test");
    assert!(is_one_quota_of(starts, &before), "{before:?}");
    for answer in before.iter().skip(before.len() / 2).chain(&fresh) {
        assert!(matches!(answer, Answer::Denied(wait) if *wait <= UNTIL_THE_NEXT), "{answer:?}");
    }

    let first = loop {
        match processes[1].ask() {
            Answer::Granted(end) => break end,
            Answer::Denied(_) => assert!(now(server) < starts + 60_000_000, "no next window"),
        }
        sleep(Duration::from_millis(5));
    };
    assert_eq!(first, starts + HOUR, "the end of the next window");
    assert!(now(server) >= starts, "a window began before its time");
    let mut after = vec![Answer::Granted(first)];
    after.extend(ask_in_turn(&mut processes));
    after.extend(CLOCKS.iter().map(|ahead| start(ahead).ask()));
    assert!(is_one_quota_of(starts + HOUR, &after), "{after:?}");
}

/// While an edit of the anchor is rolled out: their windows begin half an hour apart.
#[test]
fn two_processes_with_two_anchors_share_one_quota() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let half = now(&server) - HOUR / 4;
    let of = |first: u64| -> Vec<u64> { (0..5).map(|n| first - 2 * HOUR + n * HOUR).collect() };
    let (east, west) = (of(half), of(half + HOUR / 2));
    for (key, order) in [("ada", [&east, &west]), ("bob", [&west, &east])] {
        let mut processes = order.map(|boundaries| Process::start(&server.url(), LIMIT, boundaries, 0));
        let end = order[0].iter().copied().find(|at| *at > now(&server)).unwrap();
        let rounds = 2 * usize::try_from(LIMIT).unwrap();
        let ask = |_| processes.iter_mut().map(|process| process.ask_for(key)).collect::<Vec<_>>();
        let answers: Vec<Answer> = (0..rounds).flat_map(ask).collect();
        assert!(is_one_quota_of(end, &answers), "{key}, until {end}: {answers:?}");
    }
}
