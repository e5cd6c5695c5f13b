//! Servers that stall, with and without their connections, and what is left of claims after that.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use tollgate_conformance::random::Random;
use tollgate_test_servers::{Server, short_or_long};
use tollgate_tests::Claims;

/// Longer than anything takes, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A time to live during which a test ends. Only a release frees a slot of this one.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Where servers under test have [`Claims::route`].
pub(crate) const CLAIMS: &str = "/claims";

/// The time between the beginnings of two stalls.
const PERIOD: Duration = Duration::from_millis(500);

/// How long servers stall again and again.
pub(crate) fn stall_time() -> Duration {
    Duration::from_secs(short_or_long(4, 60))
}

fn stall_length(random: &mut Random) -> Duration {
    Duration::from_millis(30 + random.below(371))
}

fn periods() -> Interval {
    let mut periods = interval(PERIOD);
    periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
    periods
}

/// Stops one of these servers twice in each second, for 30 to 400 ms. Its connections stay open.
pub(crate) async fn stall(servers: &[&Server], time: Duration) {
    let (mut random, mut periods, begin) = (Random::new(1), periods(), Instant::now());
    while begin.elapsed() < time {
        periods.tick().await;
        let server = random.one_of(servers);
        server.pause().unwrap();
        sleep(stall_length(&mut random)).await;
        server.resume().unwrap();
    }
}

/// Stops these servers in turn as [`stall`] does, and cuts all connections of each. Goes on until
/// the time is over and a claim was lost.
pub(crate) async fn stall_and_cut(servers: &[&Server], time: Duration, mut lost: impl AsyncFnMut() -> u64) {
    let (mut random, mut periods, begin) = (Random::new(2), periods(), Instant::now());
    let mut cutters: Vec<Cutter> = servers.iter().map(|server| Cutter::of(server)).collect();
    // A server reads from its connections in the order in which data arrived. If the cut is first,
    // claims are not executed. If it is last, they are executed and not answered.
    for is_first in [true, false].into_iter().cycle() {
        for (server, cutter) in servers.iter().zip(&mut cutters) {
            if begin.elapsed() >= time && lost().await > 0 {
                return;
            }
            assert!(begin.elapsed() < time + PATIENCE, "no claim was lost");
            periods.tick().await;
            server.pause().unwrap();
            if is_first {
                cutter.cut();
            }
            sleep(stall_length(&mut random)).await;
            if !is_first {
                cutter.cut();
            }
            server.resume().unwrap();
            // Otherwise it might cut what connects after this.
            cutter.has_cut();
        }
    }
}

/// A connection over which all others of its server are cut.
struct Cutter(BufReader<TcpStream>);

impl Cutter {
    fn of(server: &Server) -> Cutter {
        let mut cutter = Cutter(BufReader::new(TcpStream::connect(server.address()).unwrap()));
        cutter.send("PING");
        // From now on the server reads from it.
        assert_eq!(cutter.answer(), "+PONG\r\n");
        cutter
    }

    fn cut(&mut self) {
        self.send("CLIENT KILL TYPE normal");
    }

    /// Waits until the server has cut them.
    fn has_cut(&mut self) {
        let cut = self.answer();
        assert!(cut.starts_with(':'), "{cut}");
    }

    fn send(&mut self, command: &str) {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}

/// How many claims these servers have lost.
pub(crate) async fn claims_lost(servers: &[SocketAddr]) -> u64 {
    let mut lost = 0;
    for server in servers {
        lost += Claims::at(*server, CLAIMS).await.lost;
    }
    lost
}

/// Waits until each claim of these servers was answered or lost.
pub(crate) async fn claims_are_over(servers: &[SocketAddr]) {
    let begin = Instant::now();
    for server in servers {
        while Claims::at(*server, CLAIMS).await.unanswered > 0 {
            assert!(begin.elapsed() < PATIENCE, "a claim is neither answered nor lost");
            sleep(PERIOD / 50).await;
        }
    }
}

/// Waits for a time by the clock of a server.
pub(crate) async fn wait_by(server: &Server, time: Duration) {
    let end = time_of(server) + time;
    while time_of(server) <= end {
        sleep(PERIOD / 50).await;
    }
}

fn time_of(server: &Server) -> Duration {
    let time = server.command(&["TIME"]).unwrap();
    let (seconds, micros) = time.split_once('\n').unwrap();
    Duration::from_secs(seconds.parse().unwrap()) + Duration::from_micros(micros.parse().unwrap())
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < PATIENCE, "not in a minute: {what}");
        sleep(PERIOD / 50).await;
    }
}
