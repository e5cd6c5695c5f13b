//! `--log FILE`: a line of JSON for each decision, which `tollgate replay` reads.
//!
//! A thread writes the lines. If the file does not take them in time, such as a pipe whose reader
//! is slow, lines are dropped. The next line says how many, and no request waits.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, Uri};
use humantime::format_rfc3339_micros;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::task_local;
use tollgate::extract::{AddressExtractor, ClientIp, PeerIp};
use tollgate::store::{
    After, BlockStart, Check, End, Grant, RenewalReport, Reply, SentClaims, Settled, Store, Then, Times,
    Unsent, Verdict,
};
use tollgate::time::Clock;
use tollgate::watch::Watcher;
use tollgate::{Head, Key, Policy, PolicyError, Share, StoreExt, Wait};

use crate::config::Config;
use crate::live_rules::LiveRules;
use crate::store::AnyStore;

/// How many lines wait for the file at most: about 30 MB.
const MOST_WAITING: usize = 1 << 16;

task_local! {
    static REQUEST: Requested;
}

/// The request about which the store is asked.
#[derive(Clone, Debug)]
struct Requested {
    method: Method,
    uri: Uri,
    peer: Option<IpAddr>,
}

/// The decisions of a store, in a file.
#[derive(Clone, Debug)]
pub(crate) struct DecisionLog(Arc<LogFile>);

#[derive(Debug)]
struct LogFile {
    lines: SyncSender<Box<LogLine>>,
    dropped: Arc<AtomicU64>,
    rules: LiveRules,
    client_ip: Option<ClientIp>,
    /// Knows the version of the rules, if they are from a file.
    watcher: OnceLock<Weak<Watcher>>,
}

#[derive(Debug, Serialize)]
struct LogLine {
    time: String,
    version: u64,
    /// How many decisions before this one have no line.
    #[serde(skip_serializing_if = "is_zero")]
    dropped: u64,
    /// Whether a rule in shadow decided.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    checks: Vec<LogCheck>,
}

#[derive(Debug, Serialize)]
struct LogCheck {
    rule: String,
    /// A digest of the key, since keys may be secrets.
    key: String,
    cost: u64,
    denied: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl DecisionLog {
    /// Appends to a file.
    pub(crate) fn open(path: &Path, config: &Config) -> Result<DecisionLog, String> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let cannot_write = |error| format!("--log: {}: {error}", path.display());
        let file = file.map_err(cannot_write)?;
        let (lines, waiting) = sync_channel(MOST_WAITING);
        let dropped = Arc::<AtomicU64>::default();
        let not_written = Arc::clone(&dropped);
        let writer = thread::Builder::new().name("log".to_owned());
        writer.spawn(move || write(file, &waiting, &not_written)).map_err(cannot_write)?;
        Ok(DecisionLog(Arc::new(LogFile {
            lines,
            dropped,
            rules: config.rules.clone(),
            client_ip: config.client_ip.clone(),
            watcher: OnceLock::new(),
        })))
    }

    /// Notes the version of the rules from now on.
    pub(crate) fn follow(&self, watcher: &Arc<Watcher>) {
        let _ = self.0.watcher.set(Arc::downgrade(watcher));
    }

    /// Logs what this store decides.
    pub(crate) fn of(&self, store: AnyStore) -> AnyStore {
        LoggedStore { store, log: self.clone() }.boxed()
    }

    /// Hands a line over, or counts it.
    fn send(&self, line: Box<LogLine>) {
        if self.0.lines.try_send(line).is_err() {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes lines until the log is dropped. A line that a full disk does not take is counted too.
fn write(mut file: impl Write, lines: &Receiver<Box<LogLine>>, dropped: &AtomicU64) {
    for mut line in lines {
        line.dropped = dropped.swap(0, Ordering::Relaxed);
        let text = serde_json::to_vec(&line).map(|text| [&text[..], b"\n"].concat());
        let written = text.map_err(io::Error::from).and_then(|text| file.write_all(&text));
        if written.is_err() {
            dropped.fetch_add(line.dropped + 1, Ordering::Relaxed);
        }
    }
}

/// Lets the log see what is asked about.
pub(crate) async fn note(State(log): State<DecisionLog>, request: Request, next: Next) -> Response {
    let head = Head::from(&request);
    let peer = match &log.0.client_ip {
        Some(client_ip) => client_ip.address(&head),
        None => PeerIp::new().address(&head),
    };
    let requested = Requested { method: request.method().clone(), uri: request.uri().clone(), peer };
    REQUEST.scope(requested, next.run(request)).await
}

#[derive(Clone, Debug)]
struct LoggedStore {
    store: AnyStore,
    log: DecisionLog,
}

/// The line of a decision that is not made yet. `None` for a look.
struct LogDecision(Option<Box<LogLine>>);

impl LogDecision {
    fn new(log: &LogFile, set: &[Check<'_>], times: Times) -> LogDecision {
        if times.max() == 0 {
            return LogDecision(None);
        }
        let requested = REQUEST.try_with(Clone::clone).ok();
        let watcher = log.watcher.get().and_then(Weak::upgrade);
        let rules = log.rules.now();
        let shadows: HashSet<&str> =
            rules.iter().filter(|rule| rule.in_shadow).map(|rule| rule.name()).collect();
        let check = |check: &Check<'_>| LogCheck {
            rule: check.policy.name().to_owned(),
            key: digest(check.key),
            cost: check.cost,
            denied: false,
        };
        LogDecision(Some(Box::new(LogLine {
            time: String::new(),
            version: watcher.map_or(1, |watcher| watcher.status().version()),
            dropped: 0,
            shadow: set.iter().any(|check| shadows.contains(check.policy.name())),
            allowed: false,
            method: requested.as_ref().map(|requested| requested.method.to_string()),
            path: requested.as_ref().map(|requested| requested.uri.path().to_owned()),
            peer: requested.and_then(|requested| requested.peer),
            // The block of a rule has its name, and follows it.
            checks: set.iter().filter(|check| !check.policy.numbers().is_block()).map(check).collect(),
        })))
    }
}

impl After<Result<Verdict, Infallible>> for LogDecision {
    type Shared = DecisionLog;
    type Output = Result<Verdict, Infallible>;

    fn after(self, log: &DecisionLog, answer: Result<Verdict, Infallible>) -> Result<Verdict, Infallible> {
        if let (Some(mut line), Ok(verdict)) = (self.0, &answer) {
            // A lease and the cache of denials decide by the clock of this process.
            let time = verdict.decided_at().unwrap_or_else(|| Clock::system().now());
            line.time =
                format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(time.as_micros())).to_string();
            line.allowed = verdict.is_granted();
            for (check, status) in line.checks.iter_mut().zip(verdict.each()) {
                check.denied = status.wait() != Wait::None;
            }
            log.send(line);
        }
        answer
    }
}

impl Store for LoggedStore {
    type Error = Infallible;
    type Acquire = Then<<AnyStore as Store>::Acquire, LogDecision>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let line = LogDecision::new(&self.log.0, set, times);
        self.store.acquire(set, times).then(&self.log, line)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.store.refund(grants)
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Infallible> + use<> {
        self.store.settle(grants, total)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Infallible> + use<> {
        self.store.renew(grants, report)
    }

    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, Infallible> + use<> {
        self.store.block(policy, key, share)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.store.reset(key, policies)
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> LoggedStore {
        LoggedStore { store: self.store.with_deadline(deadline), ..self.clone() }
    }

    fn in_shadow(&self) -> LoggedStore {
        LoggedStore { store: self.store.in_shadow(), ..self.clone() }
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<> {
        self.store.close(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

/// 128 bits in hexadecimal.
fn digest(key: &Key) -> String {
    let digest = Sha256::digest(key.to_text().as_bytes());
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use serde_json::Value;

    use super::*;

    fn line() -> Box<LogLine> {
        let (time, checks) = (String::new(), Vec::new());
        Box::new(LogLine {
            time,
            version: 1,
            dropped: 0,
            shadow: false,
            allowed: true,
            method: None,
            path: None,
            peer: None,
            checks,
        })
    }

    /// A pipe whose reader takes nothing until the other end of the first channel is dropped.
    struct SlowPipe(Receiver<()>, Sender<Vec<u8>>);

    impl Write for SlowPipe {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.send(text.to_vec()).map_err(io::Error::other)?;
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_file_does_not_take_in_time_are_dropped_and_counted() {
        let ((go, wait), (seen, texts)) = (channel(), channel());
        let (lines, waiting) = sync_channel(4);
        let dropped = Arc::<AtomicU64>::default();
        let log = DecisionLog(Arc::new(LogFile {
            lines,
            dropped: Arc::clone(&dropped),
            rules: LiveRules::fixed(Vec::new()),
            client_ip: None,
            watcher: OnceLock::new(),
        }));
        let writer = thread::spawn(move || write(SlowPipe(wait, seen), &waiting, &dropped));
        // This would never return if a request waited.
        (0..100).for_each(|_| log.send(line()));
        drop(go);
        log.0.lines.send(line()).unwrap();
        drop(log);
        writer.join().unwrap();
        let lines: Vec<Value> = texts.iter().map(|text| serde_json::from_slice(&text).unwrap()).collect();
        let dropped: u64 = lines.iter().map(|line| line["dropped"].as_u64().unwrap_or(0)).sum();
        assert!(lines.len() <= 6, "{} lines", lines.len());
        assert_eq!(dropped + lines.len() as u64, 101);
    }

    /// A disk that is full for so many lines.
    struct FullDisk(u32, Vec<u8>);

    impl Write for &mut FullDisk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if self.0 > 0 {
                self.0 -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1.write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted() {
        let (lines, waiting) = channel();
        (0..5).for_each(|_| lines.send(line()).unwrap());
        drop(lines);
        let mut disk = FullDisk(3, Vec::new());
        write(&mut disk, &waiting, &AtomicU64::new(0));
        let text = String::from_utf8(disk.1).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (lines.len(), &lines[0]["dropped"], &lines[1]["dropped"]),
            (2, &Value::from(3), &Value::Null)
        );
    }
}
