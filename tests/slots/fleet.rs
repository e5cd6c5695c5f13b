//! The processes of a test: Redis, the servers, and their clients.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate_conformance::random::Random;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::Proxy;

use crate::slots::TTL;
use crate::slots::history::History;

pub(crate) const SERVERS: usize = 4;
const CLIENTS: u32 = 500;

/// The server whose way to Redis leads through a proxy.
pub(crate) const CUT_OFF: usize = 1;

/// A process that serves.
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
    journal: PathBuf,
    was_killed: bool,
}

impl Process {
    fn start(url: &str, journal: PathBuf, mode: &str, ttl: Duration) -> Process {
        let mut command = crate::process_of("slots");
        command.arg(url).arg(&journal).arg(mode).arg(ttl.as_millis().to_string());
        let log = File::create(journal.with_extension("log")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Process { child, address: line.trim().parse().unwrap(), journal, was_killed: false }
    }

    pub(crate) fn kill(&mut self) {
        self.assert_it_runs();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.was_killed = true;
    }

    /// # Panics
    /// If it has ended by itself, as by a panic in a destructor.
    fn assert_it_runs(&mut self) {
        let Some(status) = self.child.try_wait().unwrap() else { return };
        let said = std::fs::read_to_string(self.journal.with_extension("log")).unwrap();
        // Of the panics, the last is why. Before it there is one of a handler.
        let from = said.rmatch_indices("panicked at").nth(2).map_or(0, |(at, _)| at);
        panic!("a server ended by itself, {status}: {}", &said[from..]);
    }

    /// Stops it, or lets it go on.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

pub(crate) struct Fleet {
    pub(crate) redis: Server,
    pub(crate) proxy: Proxy,
    pub(crate) processes: Vec<Process>,
    _journals: TempDir,
}

impl Fleet {
    pub(crate) async fn start(mode: &str) -> Fleet {
        Fleet::with_ttl(mode, TTL).await
    }

    pub(crate) async fn with_ttl(mode: &str, ttl: Duration) -> Fleet {
        let redis = Server::start(Kind::Redis8_2).unwrap();
        let proxy = Proxy::before(redis.address()).await;
        let journals = tempfile::tempdir().unwrap();
        let start = |n: usize| {
            let url = if n == CUT_OFF { format!("redis://{}", proxy.address()) } else { redis.url() };
            Process::start(&url, journals.path().join(n.to_string()), mode, ttl)
        };
        let processes = (0..SERVERS).map(start).collect();
        Fleet { redis, proxy, processes, _journals: journals }
    }

    /// Runs all clients until `disturb` has ended.
    pub(crate) async fn work(&mut self, disturb: impl AsyncFnOnce(&mut Fleet)) {
        let addresses: Arc<[SocketAddr]> = self.processes.iter().map(|process| process.address).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for n in 0..CLIENTS {
            let (addresses, is_over) = (Arc::clone(&addresses), Arc::clone(&is_over));
            clients.spawn(async move {
                let mut random = Random::new(n.into());
                while !is_over.load(Ordering::Relaxed) {
                    let to = random.one_of(&addresses);
                    // A server that was killed, or a handler that panics, resets the connection.
                    drop(request(to, &mut random).await);
                    sleep(Duration::from_millis(100 + random.below(300))).await;
                }
            });
        }
        disturb(self).await;
        is_over.store(true, Ordering::Relaxed);
        timeout(Duration::from_secs(60), clients.join_all()).await.expect("all clients end");
        let running = self.processes.iter_mut().filter(|process| !process.was_killed);
        running.for_each(Process::assert_it_runs);
    }

    /// Starts a request at a server that works for longer than a fault lasts, once a slot is free.
    /// It leaves when the result is dropped.
    pub(crate) async fn start_long_request(&self, server: usize) -> TcpStream {
        loop {
            let mut connection = TcpStream::connect(self.processes[server].address).await.unwrap();
            let head = "GET /6000/20000/false HTTP/1.1\r\nhost: work\r\n\r\n";
            connection.write_all(head.as_bytes()).await.unwrap();
            // A refusal comes at once.
            if timeout(Duration::from_millis(500), connection.read_u8()).await.is_err() {
                return connection;
            }
        }
    }

    /// The addresses of the servers, but for those that were killed.
    pub(crate) fn addresses(&self, killed: &[usize]) -> Vec<SocketAddr> {
        let runs = |(n, _): &(usize, _)| !killed.contains(n);
        self.processes.iter().enumerate().filter(runs).map(|(_, process)| process.address).collect()
    }

    pub(crate) fn history(&self) -> History {
        History::read(self.processes.iter().map(|process| &process.journal))
    }
}

/// Asks for some work, and leaves at random.
async fn request(address: SocketAddr, random: &mut Random) -> io::Result<()> {
    let is_long = random.below(20) == 0;
    let time = if is_long { 1_500 + random.below(2_000) } else { random.below(300) };
    let (panics, limit) = (random.below(15) == 0, if random.below(10) == 0 { 50 } else { 10_000 });
    let stays = if random.below(4) == 0 { random.below(time + 20) } else { 10_000 };
    let mut connection = TcpStream::connect(address).await?;
    let head = format!("GET /{time}/{limit}/{panics} HTTP/1.1\r\nhost: work\r\nconnection: close\r\n\r\n");
    connection.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_millis(stays), connection.read_to_end(&mut answer)).await;
    Ok(())
}
