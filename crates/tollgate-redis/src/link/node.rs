//! A node of a Cluster: one connection, which all calls share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bb8_redis::redis::aio::{ConnectionLike, MultiplexedConnection};
use bb8_redis::redis::{Client, Cmd, ConnectionInfo, Pipeline, RedisError, Value};
use tokio::sync::Mutex;

use super::backoff::Backoff;
use super::{Timeouts, obituary};
use crate::Error;

/// So many answers in a row that did not come in time, and a connection is given up.
const TIMEOUTS: u32 = 3;

pub(super) struct Node {
    /// Where it is: host and port.
    pub(super) address: (String, u16),
    client: Client,
    timeouts: Timeouts,
    backoff: Backoff,
    connection: Mutex<Option<Conn>>,
}

#[derive(Clone)]
pub(super) struct Conn {
    inner: MultiplexedConnection,
    health: Arc<Health>,
}

struct Health {
    /// It has ended.
    dead: Arc<AtomicBool>,
    broken: AtomicBool,
    /// How many answers in a row did not come in time.
    timeouts: AtomicU32,
}

impl Node {
    pub(super) fn new(
        address: (String, u16),
        info: ConnectionInfo,
        timeouts: Timeouts,
    ) -> Result<Node, Error> {
        let (client, backoff) = (Client::open(info)?, Backoff::new());
        Ok(Node { address, client, timeouts, backoff, connection: Mutex::default() })
    }

    /// Its connection; an error at once where connecting has just failed. Whoever comes meanwhile waits for the same attempt.
    pub(super) async fn connection(&self) -> Result<Conn, Error> {
        let mut kept = self.connection.lock().await;
        if let Some(conn) = kept.as_ref().filter(|conn| conn.is_of_use()) {
            return Ok(conn.clone());
        }
        self.backoff.check()?;
        *kept = None;
        let (config, dead) = obituary(self.timeouts);
        match self.client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(inner) => {
                self.backoff.succeeded();
                let health = Health { dead, broken: AtomicBool::new(false), timeouts: AtomicU32::new(0) };
                Ok(kept.insert(Conn { inner, health: Arc::new(health) }).clone())
            }
            Err(error) => {
                let error = Error::from(error);
                self.backoff.failed(error.clone());
                Err(error)
            }
        }
    }

    /// Whether it has a connection that has answered lately, as far as is known without waiting.
    pub(super) fn answers(&self) -> bool {
        let kept = self.connection.try_lock();
        kept.is_ok_and(|kept| {
            kept.as_ref()
                .is_some_and(|conn| conn.is_of_use() && conn.health.timeouts.load(Ordering::Relaxed) == 0)
        })
    }
}

impl Conn {
    fn is_of_use(&self) -> bool {
        !self.health.broken.load(Ordering::Relaxed) && !self.health.dead.load(Ordering::Acquire)
    }

    /// Runs a command; one that its node has only for who asks for it, if it is so.
    pub(super) async fn run(&mut self, cmd: Cmd, asking: bool) -> Result<Value, RedisError> {
        let result = if asking {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("ASKING").add_command(cmd);
            let answers = self.inner.req_packed_commands(&pipeline, 1, 1).await;
            answers.and_then(|mut answers| answers.pop().unwrap_or(Value::Nil).extract_error())
        } else {
            cmd.query_async(&mut self.inner).await
        };
        let health = &self.health;
        match &result {
            Err(error) if error.is_timeout() => {
                let timeouts = health.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
                if timeouts >= TIMEOUTS {
                    health.broken.store(true, Ordering::Relaxed);
                }
            }
            Err(error) if error.is_unrecoverable_error() || error.is_io_error() => {
                health.broken.store(true, Ordering::Relaxed);
            }
            // An answer, though perhaps not the one that was hoped for.
            _ if health.timeouts.load(Ordering::Relaxed) > 0 => health.timeouts.store(0, Ordering::Relaxed),
            _ => {}
        }
        result
    }
}
