//! The processes of a test: a Cluster, the gateways, and their clients.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::Key;
use tollgate::store::{Check, Store, Times};
use tollgate::usage::{KeyTotal, UsageTotals};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, libfaketime};

use crate::gateways::clients::{KEYS, Visit, visits};
use crate::gateways::history::{self, Stream};
use crate::gateways::plan::{policies, slots};

/// How far the clock of each gateway is ahead, in seconds.
const CLOCKS: [i64; 4] = [0, 300, -300, 0];

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that serves.
pub(crate) struct Gateway {
    process: Child,
    address: SocketAddr,
    pub(crate) journal: PathBuf,
    /// By how many microseconds its journal may be wrong.
    pub(crate) error: i64,
}

impl Gateway {
    fn start(nodes: &str, journal: PathBuf, ttl: Duration, ahead: i64) -> Gateway {
        let mut command = crate::process_of("gateways");
        command.args([nodes, "gateways"]).arg(&journal).arg(ttl.as_millis().to_string());
        if ahead != 0 {
            command.env("LD_PRELOAD", libfaketime().unwrap()).env("FAKETIME", format!("{ahead:+}"));
            // Otherwise timers are wrong, too.
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, offset, error] = *words else { panic!("a gateway said {line:?}") };
        let (offset, error): (i64, i64) = (offset.parse().unwrap(), error.parse().unwrap());
        assert!((offset + ahead * 1_000_000).abs() < 1_000_000, "Redis is {offset} µs ahead of {ahead:+} s");
        Gateway { process, address: address.parse().unwrap(), journal, error }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// The gateways, and what they share.
pub(crate) struct Fleet {
    pub(crate) gateways: Vec<Gateway>,
    visits: Vec<Visit>,
    store: RedisStore,
    pub(crate) cluster: Cluster,
    _journals: TempDir,
}

impl Fleet {
    /// Starts the gateways, for visits of so many seconds. Each stream has a slot of this time to
    /// live.
    pub(crate) async fn start(seconds: u64, ttl: Duration) -> Fleet {
        let cluster = Cluster::start(Kind::Redis8_2).unwrap();
        let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
        let nodes = nodes.join(",");
        let journals = tempfile::tempdir().unwrap();
        let journal = |n: usize| journals.path().join(n.to_string());
        let start = |(n, ahead)| Gateway::start(&nodes, journal(n), ttl, ahead);
        let gateways: Vec<Gateway> = CLOCKS.into_iter().enumerate().map(start).collect();
        let url = format!("redis-cluster://{nodes}");
        let builder = RedisStore::builder(&url).prefix("gateways").response_timeout(PATIENCE);
        let store = builder.connect().await.unwrap();
        let visits = visits(seconds, gateways.len());
        Fleet { gateways, visits, store, cluster, _journals: journals }
    }

    /// Lets no replica take over from a master that answers late, as on a busy machine.
    pub(crate) fn keep_masters(&self) {
        for node in self.cluster.nodes() {
            node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).unwrap();
        }
    }

    /// Makes one client of three leave after a tenth of a second or less.
    pub(crate) fn make_hasty(&mut self) {
        for (n, visit) in self.visits.iter_mut().enumerate().step_by(3) {
            visit.stays = Duration::from_millis(n as u64 % 100);
        }
    }

    /// Runs all clients, and `disturb` in the middle.
    pub(crate) async fn stream(&mut self, disturb: impl FnOnce(&mut Fleet)) {
        self.stream_during(async |fleet| {
            sleep(fleet.visits[fleet.visits.len() / 2].starts_at).await;
            disturb(fleet);
        })
        .await;
    }

    /// Runs all clients, and `disturb` from the beginning.
    pub(crate) async fn stream_during(&mut self, disturb: impl AsyncFnOnce(&mut Fleet)) {
        let addresses: Vec<SocketAddr> = self.gateways.iter().map(|gateway| gateway.address).collect();
        let mut clients = JoinSet::new();
        for visit in &self.visits {
            let (visit, addresses) = (visit.clone(), addresses.clone());
            // A gateway that is killed, or an upstream that fails, resets the connection.
            clients.spawn(async move { drop(visit.run(&addresses).await) });
        }
        let last = self.visits.last().map_or(Duration::ZERO, |visit| visit.starts_at);
        disturb(self).await;
        timeout(last + PATIENCE, clients.join_all()).await.expect("all streams end");
    }

    /// The addresses of the gateways, but for one that was killed.
    pub(crate) fn addresses(&self, killed: Option<usize>) -> Vec<SocketAddr> {
        let runs = |(n, _): &(usize, _)| Some(*n) != killed;
        self.gateways.iter().enumerate().filter(runs).map(|(_, gateway)| gateway.address).collect()
    }

    /// The slots of this time to live that are taken.
    pub(crate) async fn in_flight(&self, ttl: Duration) -> u64 {
        let (slots, mut taken) = (slots(ttl), 0);
        for key in 0..KEYS {
            let key = Key::from(key.to_string());
            let look = self.store.acquire(&[Check::new(&slots, &key, 1)], Times::LOOK);
            taken += slots.capacity() - look.wait().await.unwrap().each()[0].remaining();
        }
        taken
    }

    /// The total of each policy in Redis.
    pub(crate) async fn totals(&self) -> Vec<u64> {
        let mut totals = Vec::new();
        for policy in policies() {
            // A key may be passed twice.
            let mut of_key = HashMap::new();
            let each = |row: KeyTotal| {
                of_key.insert(row.key, row.total);
            };
            self.store.scan_totals(policy.name(), each).await.unwrap();
            totals.push(of_key.values().sum());
        }
        totals
    }

    /// The streams as the journals have them by now.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        history::read(&self.gateways, &self.visits)
    }

    /// The streams of a policy, or of a key of it.
    pub(crate) fn of<'a>(&self, streams: &'a [Stream], policy: usize, key: Option<u64>) -> Vec<&'a Stream> {
        let is_of = |visit: &Visit| visit.policy == policy && key.is_none_or(|key| visit.key == key);
        streams.iter().zip(&self.visits).filter(|(_, visit)| is_of(visit)).map(|(stream, _)| stream).collect()
    }

    /// Waits until every stream of a gateway that runs is corrected.
    pub(crate) async fn corrected(&self, killed: Option<usize>) -> Vec<Stream> {
        let start = Instant::now();
        loop {
            let streams = self.streams();
            let runs = |visit: &Visit| Some(visit.gateway) != killed;
            let open = streams.iter().zip(&self.visits);
            let open: Vec<_> = open.filter(|(stream, visit)| runs(visit) && stream.is_open()).collect();
            if open.is_empty() {
                return streams;
            }
            assert!(start.elapsed() < PATIENCE, "not corrected: {open:#?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}
