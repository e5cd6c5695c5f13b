//! `--log FILE`: a line of JSON for each decision, which `tollgate replay` reads.

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
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
use tollgate::store::{After, Check, Grant, Renewal, Reply, Settled, Store, Then, Times, Verdict};
use tollgate::watch::Watcher;
use tollgate::{Clock, Head, Key, Policy, PolicyError, StoreExt, Wait};

use crate::config::Config;
use crate::live_rules::LiveRules;
use crate::store::AnyStore;

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
    file: Mutex<File>,
    rules: LiveRules,
    client_ip: Option<ClientIp>,
    /// Knows the version of the rules, if they are from a file.
    watcher: OnceLock<Weak<Watcher>>,
}

#[derive(Serialize)]
struct LogLine {
    time: String,
    version: u64,
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

#[derive(Serialize)]
struct LogCheck {
    rule: String,
    /// A digest of the key, since keys may be secrets.
    key: String,
    cost: u64,
    denied: bool,
}

impl DecisionLog {
    /// Appends to a file.
    pub(crate) fn open(path: &Path, config: &Config) -> Result<DecisionLog, String> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| format!("--log: {}: {error}", path.display()))?;
        Ok(DecisionLog(Arc::new(LogFile {
            file: Mutex::new(file),
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

    fn write(&self, line: &LogLine) {
        let Ok(mut line) = serde_json::to_vec(line) else { return };
        line.push(b'\n');
        // A full disk refuses no request.
        let _ = self.0.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
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
        let in_shadow =
            |check: &Check<'_>| rules.iter().any(|rule| rule.in_shadow && rule.name() == check.policy.name());
        let check = |check: &Check<'_>| LogCheck {
            rule: check.policy.name().to_owned(),
            key: digest(check.key),
            cost: check.cost,
            denied: false,
        };
        LogDecision(Some(Box::new(LogLine {
            time: String::new(),
            version: watcher.map_or(1, |watcher| watcher.status().version()),
            shadow: set.iter().any(in_shadow),
            allowed: false,
            method: requested.as_ref().map(|requested| requested.method.to_string()),
            path: requested.as_ref().map(|requested| requested.uri.path().to_owned()),
            peer: requested.and_then(|requested| requested.peer),
            // The block of a rule has its name, and follows it.
            checks: set.iter().filter(|check| !check.policy.is_block()).map(check).collect(),
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
            log.write(&line);
        }
        answer
    }
}

impl Store for LoggedStore {
    type Error = Infallible;
    type Acquire = Then<<AnyStore as Store>::Acquire, LogDecision>;
    type Done = <AnyStore as Store>::Done;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let line = LogDecision::new(&self.log.0, set, times);
        self.store.acquire(set, times).then(&self.log, line)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        self.store.refund(grants)
    }

    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, Infallible> {
        self.store.settle(grants, total).await
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Infallible> {
        self.store.renew(grants).await
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        self.store.reset(key, policies)
    }

    fn end_waits_after(&mut self, limit: Duration) -> bool {
        self.store.end_waits_after(limit)
    }

    fn patient(&self) -> LoggedStore {
        LoggedStore { store: self.store.patient(), ..self.clone() }
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
