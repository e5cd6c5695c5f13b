//! A node of a Cluster, with one multiplexed connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use bb8_redis::redis::aio::{ConnectionLike, MultiplexedConnection};
use bb8_redis::redis::{Cmd, ConnectionInfo, Pipeline, RedisError, ServerErrorKind, Value, cmd};
use tokio::spawn;
use tokio::sync::Mutex;

use super::backoff::Backoff;
use super::call::{CallOutcome, MAX_TIMEOUTS, query, server_kind};
use super::credentials::Login;
use super::open::{Address, Connecting, ConnectionEnd, Idling, Opened, open};
use crate::error::{Cause, Error, LateAnswer, next_call};

pub(crate) struct ClusterNode {
    pub(super) address: Address,
    /// Unique in this process.
    pub(super) number: u64,
    info: ConnectionInfo,
    connecting: Connecting,
    backoff: Backoff,
    connection: Mutex<Option<KeptConn>>,
    /// How many attempts to connect have ended.
    attempts: AtomicU32,
    /// Whether a call needed this node since the last refresh of the hash slots.
    pub(super) is_wanted: AtomicBool,
    standing: Arc<AtomicU8>,
}

/// The connection of a node, for the next calls.
struct KeptConn {
    conn: NodeConn,
    login: Option<Login>,
    idling: Idling,
}

/// The node has not answered the last call on keys, or had none.
const UNKNOWN: u8 = 0;
/// The node answered the last call on keys.
const SERVES: u8 = 1;
/// The node answered that the cluster is down. It may be in a minority that lost the others.
const DOWN: u8 = 2;

#[derive(Clone)]
pub(super) struct NodeConn {
    inner: MultiplexedConnection,
    health: Arc<Health>,
    /// That of the node.
    standing: Arc<AtomicU8>,
    /// How long an answer may take.
    response: Duration,
}

struct Health {
    end: ConnectionEnd,
    broken: AtomicBool,
    /// How many calls in a row timed out.
    timeouts: AtomicU32,
}

impl ClusterNode {
    pub(super) fn new(address: Address, info: ConnectionInfo, connecting: Connecting) -> ClusterNode {
        let (number, backoff) = (next_call(), Backoff::new());
        let (connection, attempts, is_wanted, standing) = Default::default();
        ClusterNode { address, number, info, connecting, backoff, connection, attempts, is_wanted, standing }
    }

    /// The node's connection. Fails at once if connecting has just failed. Concurrent callers wait
    /// for the same attempt.
    pub(super) async fn connection(&self) -> Result<NodeConn, Error> {
        let attempts = self.attempts.load(Ordering::Relaxed);
        let mut kept = self.connection.lock().await;
        if let Some(KeptConn { conn, login, idling }) = kept.as_mut().filter(|kept| kept.conn.is_usable())
            && idling.is_answered(&conn.health.end, &mut conn.inner).await
            && Login::is_kept(login, &mut conn.inner, self.connecting.timeouts).await
        {
            return Ok(conn.clone());
        }
        let waited = self.attempts.load(Ordering::Relaxed) != attempts;
        match self.backoff.last() {
            // Even if the backoff is over by now: waiting callers start no further attempt.
            Some(failure) if waited => return Err(failure),
            _ => self.backoff.check()?,
        }
        *kept = None;
        // In a task, so that its timeout does not depend on how often the caller is polled.
        let connects = spawn(open(self.info.clone(), self.connecting.clone()));
        let connected =
            connects.await.map_err(|_| Cause::Stopped).and_then(|made| made.map_err(Cause::Redis));
        // Counted at the end, so that callers that came during the attempt notice it.
        self.attempts.fetch_add(1, Ordering::Relaxed);
        match connected {
            Ok(Opened { connection: inner, end, login }) => {
                self.backoff.succeeded();
                let health = Health { end, broken: AtomicBool::new(false), timeouts: AtomicU32::new(0) };
                let standing = Arc::clone(&self.standing);
                let response = self.connecting.timeouts.response;
                let conn = NodeConn { inner, health: Arc::new(health), standing, response };
                Ok(kept.insert(KeptConn { conn, login, idling: Idling::new() }).conn.clone())
            }
            Err(cause) => {
                let error = Error::from(cause);
                self.backoff.failed(error.clone());
                Err(error)
            }
        }
    }

    /// Whether the node answered the last call on keys, and not that the cluster is down.
    pub(super) fn serves(&self) -> bool {
        self.standing.load(Ordering::Relaxed) == SERVES
    }

    /// Notes that the node owns no hash slot any more.
    pub(super) fn retire(&self) {
        self.standing.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Whether the node answered the last call on keys that the cluster is down.
    pub(super) fn reports_down(&self) -> bool {
        self.standing.load(Ordering::Relaxed) == DOWN
    }
}

impl NodeConn {
    fn is_usable(&self) -> bool {
        !self.health.broken.load(Ordering::Relaxed) && !self.health.end.is_reported()
    }

    /// Runs a command on keys. With `asking`, the node accepts it for a hash slot that is moving
    /// there. Without it, an answer that comes after the timeout goes to `late`.
    pub(super) async fn run(
        &mut self,
        cmd: Cmd,
        asking: bool,
        late: &mut Option<LateAnswer>,
    ) -> Result<Value, RedisError> {
        let result = if asking {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("ASKING").add_command(cmd);
            // If `ASKING` is refused, so is the command.
            let answers = self.inner.req_packed_commands(&pipeline, 0, 2).await;
            answers.and_then(|answers| {
                answers.into_iter().try_fold(Value::Nil, |_, answer| answer.extract_error())
            })
        } else {
            query(&self.inner, cmd, self.response, late).await
        };
        self.record(&result);
        let standing = match CallOutcome::of(&result) {
            CallOutcome::Answered => match result.as_ref().err().and_then(server_kind) {
                Some(ServerErrorKind::ClusterDown) => DOWN,
                // Another node has the keys.
                Some(ServerErrorKind::Moved) => UNKNOWN,
                _ => SERVES,
            },
            CallOutcome::TimedOut | CallOutcome::Ended => UNKNOWN,
        };
        if self.standing.load(Ordering::Relaxed) != standing {
            self.standing.store(standing, Ordering::Relaxed);
        }
        result
    }

    pub(super) fn inner(&mut self) -> &mut MultiplexedConnection {
        &mut self.inner
    }

    /// Asks for the owners of all hash slots.
    pub(super) async fn hash_slots(&mut self) -> Result<Value, RedisError> {
        let mut hash_slots = cmd("CLUSTER");
        hash_slots.arg("SLOTS");
        self.run_without_key(hash_slots).await
    }

    /// Runs a command that names no key, so that its answer does not show whether the node serves.
    pub(super) async fn run_without_key(&mut self, cmd: Cmd) -> Result<Value, RedisError> {
        let result = cmd.query_async(&mut self.inner).await;
        self.record(&result);
        result
    }

    fn record(&self, result: &Result<Value, RedisError>) {
        let health = &self.health;
        match CallOutcome::of(result) {
            CallOutcome::Answered if health.timeouts.load(Ordering::Relaxed) == 0 => {}
            CallOutcome::Answered => health.timeouts.store(0, Ordering::Relaxed),
            CallOutcome::TimedOut => {
                let timeouts = health.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
                if timeouts >= MAX_TIMEOUTS {
                    health.broken.store(true, Ordering::Relaxed);
                }
            }
            CallOutcome::Ended => health.broken.store(true, Ordering::Relaxed),
        }
    }
}
