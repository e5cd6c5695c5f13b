//! Two thousand customers whose limits stand in a table that changes while four processes serve
//! them over a Cluster. Units are settled after the work, jobs are taken by one process and
//! released by another. Processes and a node of the Cluster are killed meanwhile. Afterwards each
//! customer has used what the journals of all processes say, to the unit, and holds the jobs that
//! they say. Only what a process was killed with, or what it reported as unknown, is in doubt.
//!
//! With `TOLLGATE_LONG=1` each fleet works for a minute.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod oracle;
mod plan;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tollgate::jobs::{JobId, Jobs};
use tollgate::{Limit, Limiter, Question, Quota, StoreExt};
use tollgate_conformance::random::Random;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Server, short_or_long};

use crate::faults::kill_in_step;
use crate::stalls::{PATIENCE, eventually};
use oracle::Oracle;
use plan::{CUSTOMERS, Row, TTL, jobs, key, streams, units};

const PERSISTENT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const PROCESSES: u64 = 4;

/// How often some rows change.
const EDITS: Duration = Duration::from_millis(250);
const EDITED: u64 = 200;

/// The most that any row allows, and more than that is used.
const MOST: u64 = 200;
const ALL: u64 = 1_000_000;

/// A fleet works so long between two faults.
fn part() -> Duration {
    Duration::from_millis(short_or_long(2_500, 15_000))
}

struct Process {
    child: Child,
    journal: PathBuf,
    number: u64,
}

impl Process {
    fn start(cluster: &Cluster, files: &TempDir, number: u64) -> Process {
        let journal = files.path().join(number.to_string());
        let mut command = crate::process_of("rows");
        command.arg(url(cluster)).arg(files.path().join("table")).arg(&journal);
        command.arg(number.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "works\n");
        Process { child, journal, number }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it close its limiter.
    async fn stop(&mut self) {
        drop(self.child.stdin.take());
        let mut status = None;
        eventually("a process ends", async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        assert!(status.unwrap().success(), "process {} failed", self.number);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

struct Table {
    path: PathBuf,
    rows: Vec<Row>,
    random: Random,
}

impl Table {
    fn new(files: &TempDir) -> Table {
        let row = Row { units: Limit::Own, jobs: 1 };
        let rows = (0..CUSTOMERS).map(|_| row).collect();
        let mut table = Table { path: files.path().join("table"), rows, random: Random::new(52) };
        (0..CUSTOMERS).for_each(|customer| table.change(customer));
        table.write();
        table
    }

    fn change(&mut self, customer: u64) {
        let units = match self.random.below(10) {
            0 => Limit::Unlimited,
            1 => Limit::Nothing,
            2 => Limit::Own,
            _ => Limit::Of(Quota::per_day(20 + self.random.below(MOST - 20))),
        };
        self.rows[usize::try_from(customer).unwrap()] = Row { units, jobs: 1 + self.random.below(4) };
    }

    /// Replaces the file, so that it is read whole.
    fn write(&self) {
        let next = self.path.with_extension("next");
        fs::write(&next, self.rows.iter().map(Row::to_string).collect::<String>()).unwrap();
        fs::rename(next, &self.path).unwrap();
    }

    /// Changes rows at random for so long.
    async fn edit(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            for _ in 0..EDITED {
                let some = if self.random.below(4) == 0 { 20 } else { CUSTOMERS };
                let customer = self.random.below(some);
                self.change(customer);
            }
            self.write();
            sleep(EDITS).await;
        }
    }
}

/// Lets a fleet work, in which a process is killed, then `fault` comes, then another process is
/// killed.
async fn runs(cluster: &Cluster, fault: impl AsyncFnOnce(&mut Table)) {
    let files = tempfile::tempdir().unwrap();
    let mut table = Table::new(&files);
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|number| Process::start(cluster, &files, number)).collect();
    table.edit(part()).await;
    processes[0].kill();
    processes.push(Process::start(cluster, &files, PROCESSES));
    table.edit(part()).await;
    fault(&mut table).await;
    table.edit(part()).await;
    processes[1].kill();
    processes.push(Process::start(cluster, &files, PROCESSES + 1));
    table.edit(part()).await;
    for process in &mut processes[2..] {
        process.stop().await;
    }

    let mut oracle = Oracle::default();
    for process in &processes {
        oracle.read(&process.number.to_string(), &std::fs::read_to_string(&process.journal).unwrap());
    }
    oracle.assert_within_rows();
    agrees(cluster, &oracle).await;
}

/// Compares what the Cluster knows with what the journals say.
async fn agrees(cluster: &Cluster, oracle: &Oracle) {
    let redis = RedisStore::builder(&url(cluster)).response_timeout(PATIENCE).connect().await.unwrap();
    let limiter = Limiter::new([units(), streams()]).store(redis.clone().timeout(PATIENCE).fail_closed());
    let (mut exact, mut total, all) = (0, 0, Limit::Of(Quota::per_day(ALL)));
    let all_used = oracle.used();
    for customer in 0..CUSTOMERS {
        let (key, expected) = (key(customer), all_used.get(&customer).cloned().unwrap_or(0..=0));
        let asked = [Question::new("units", &key, 1).limit(all), Question::new("streams", &key, 1)];
        let report = limiter.look_each(&asked).await.unwrap();
        let used = ALL - report.get("units").unwrap().1.remaining();
        assert!(expected.contains(&used), "customer {customer} has used {used}, and not {expected:?}");
        exact += u64::from(expected.start() == expected.end() && used > 0);
        total += used;
        // A slot whose release was lost ends with its time to live.
        eventually("no slot is taken", async || {
            let report = limiter.look_each(&asked).await.unwrap();
            report.get("streams").unwrap().1.remaining() == 1_000
        })
        .await;
    }
    println!("{total} units, and of {exact} customers to the unit");
    assert!(exact > 50, "{exact} customers are known to the unit");

    let jobs = Jobs::new(jobs(), redis);
    let mut held = 0;
    let mut all_holders = oracle.holders();
    for customer in 0..CUSTOMERS {
        let (key, [surely, perhaps]) = (key(customer), all_holders.remove(&customer).unwrap_or_default());
        let holders: Vec<String> =
            jobs.holders(&key).await.unwrap().into_iter().map(|holder| holder.id).collect();
        let ids: BTreeSet<String> = holders.iter().cloned().collect();
        assert_eq!(ids.len(), holders.len(), "customer {customer} holds a job twice: {holders:?}");
        assert!(surely.is_subset(&ids), "customer {customer} holds {ids:?}, and not {surely:?}");
        let strangers: Vec<_> = ids.difference(&surely).filter(|id| !perhaps.contains(*id)).collect();
        assert!(strangers.is_empty(), "customer {customer} holds {strangers:?}");
        for id in &ids {
            assert!(jobs.release(&key, JobId::try_new(id).unwrap()).await.unwrap());
        }
        assert!(jobs.holders(&key).await.unwrap().is_empty());
        held += ids.len();
    }
    println!("{held} jobs are held at the end");
    assert!(held > 0);
}

fn url(cluster: &Cluster) -> String {
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    format!("redis-cluster://{}", nodes.join(","))
}

fn keeps_masters(cluster: &Cluster) {
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_and_jobs_are_right_after_a_node_was_dead() {
    let cluster = Cluster::start_with(Kind::Redis8_2, &PERSISTENT).unwrap();
    keeps_masters(&cluster);
    runs(&cluster, async |table| {
        let node = &cluster.nodes()[0];
        node.kill();
        table.edit(2 * TTL).await;
        node.restart().unwrap();
    })
    .await;
}

/// No write is lost: writes stop before the promotion, until the replica has all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_and_jobs_are_right_after_a_promotion() {
    let cluster = Cluster::start_with(Kind::Redis8_2, &PERSISTENT).unwrap();
    runs(&cluster, async |table| {
        let (master, replica) = (&cluster.nodes()[0], &cluster.nodes()[3]);
        kill_in_step(master, replica);
        while !is_served_by(&cluster, replica) {
            table.edit(EDITS).await;
        }
    })
    .await;
}

/// Whether all masters agree that this node has the first hash slot.
fn is_served_by(cluster: &Cluster, node: &Server) -> bool {
    cluster.owner_of(0).is_ok_and(|owner| owner.port() == node.port())
        && node.command(&["CLUSTER", "INFO"]).is_ok_and(|info| info.contains("cluster_state:ok"))
}
