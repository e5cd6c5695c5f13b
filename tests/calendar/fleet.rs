//! Processes whose clocks differ, over one Redis.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use tollgate_test_servers::{Cluster, Kind, Server, libfaketime};

const LIMIT: u64 = 6;

const HOUR: u64 = 3_600_000_000;

/// Longer than the processes need to start and to ask, also on a busy machine.
const UNTIL_THE_NEXT: u64 = 20_000_000;

/// How far the clocks of the processes are ahead, in seconds. The last two are wrong by more than a
/// window.
const CLOCKS: [i64; 5] = [0, 300, -300, 86_400, -86_400];

/// An answer of a process, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The start of the window.
    Granted(u64),
    /// The wait.
    Denied(u64),
}

struct Process {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(url: &str, boundaries: &[u64], ahead: i64) -> Process {
        let mut command = crate::process_of("calendar");
        command.arg(url).arg(LIMIT.to_string()).args(boundaries.iter().map(u64::to_string));
        if ahead != 0 {
            command.env("LD_PRELOAD", libfaketime().unwrap()).env("FAKETIME", format!("{ahead:+}"));
            // Otherwise timers are wrong, too.
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Process { child, answers }
    }

    fn ask(&mut self) -> Answer {
        self.child.stdin.as_mut().unwrap().write_all(b"ada\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        match line.trim_end().split_once(' ') {
            Some(("granted", start)) => Answer::Granted(start.parse().unwrap()),
            Some(("denied", wait)) => Answer::Denied(wait.parse().unwrap()),
            _ => panic!("a process said {line:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

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

/// The whole quota, by the window that began at `start`, and then only denials.
fn is_one_quota_of(start: u64, answers: &[Answer]) -> bool {
    let granted = usize::try_from(LIMIT).unwrap();
    answers[..granted].iter().all(|answer| *answer == Answer::Granted(start))
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
    let start = |ahead: &i64| Process::start(url, &boundaries, *ahead);
    let mut processes: Vec<_> = CLOCKS.iter().map(start).collect();
    let before = ask_in_turn(&mut processes);
    // The first calls of processes that know no time of the server yet.
    let fresh: Vec<_> = CLOCKS.iter().map(|ahead| start(ahead).ask()).collect();
    assert!(now(server) < starts, "the machine is too slow for this test");
    assert!(is_one_quota_of(starts - HOUR, &before), "{before:?}");
    for answer in before.iter().skip(before.len() / 2).chain(&fresh) {
        assert!(matches!(answer, Answer::Denied(wait) if *wait <= UNTIL_THE_NEXT), "{answer:?}");
    }

    let first = loop {
        match processes[1].ask() {
            Answer::Granted(start) => break start,
            Answer::Denied(_) => assert!(now(server) < starts + 60_000_000, "no next window"),
        }
        sleep(Duration::from_millis(5));
    };
    assert_eq!(first, starts, "the start of the next window");
    assert!(now(server) >= starts, "a window began before its time");
    let mut after = vec![Answer::Granted(first)];
    after.extend(ask_in_turn(&mut processes));
    after.extend(CLOCKS.iter().map(|ahead| start(ahead).ask()));
    assert!(is_one_quota_of(starts, &after), "{after:?}");
}
