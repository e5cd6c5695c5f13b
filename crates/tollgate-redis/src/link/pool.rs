//! A connection pool for one server: that of a URL, or the master that Sentinels name.
//!
//! After `NOSCRIPT`, `Conn::run` sends the whole script on the same connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bb8_redis::bb8::{self, ErrorSink, ManageConnection, PooledConnection};
use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{ConnectionInfo, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::backoff::Backoff;
use super::call::{Build, CallOutcome, MAX_TIMEOUTS, Text, Timeouts, cause, is_replica, query, server_kind};
use super::credentials::Login;
use super::open::{Connecting, ConnectionEnd, Idling, Opened, open, open_resp2, ping};
use super::proxy_check::ShardingCheck;
use super::sentinels::Sentinels;
use crate::error::{Cause, Error, LateAnswer};

/// How many questions about usage are asked at once, each over a connection that checks do not
/// need.
pub(crate) const QUESTIONS: u32 = 4;

/// How many lanes there are next to those of checks: for releases, renewals and refunds, and for
/// rules in shadow.
const OTHER_LANES: u32 = 4;

/// How often a call that a replica refused is sent again, to the new master.
const MAX_RESENDS: u32 = 2;

pub(crate) struct Pool {
    pool: bb8::Pool<Manager>,
    failures: Arc<Failures>,
    /// Wakes a caller when a connection is returned.
    freed: Notify,
}

/// How long to wait for a returned connection before the pool is looked at again.
const RECHECK: Duration = Duration::from_millis(10);

pub(crate) type Checkout<'a> = PooledConnection<'a, Manager>;

impl Pool {
    pub(super) fn new(source: ServerSource, prefix: &str, connections: u32, connecting: Connecting) -> Pool {
        let failures = Arc::new(Failures { backoff: Backoff::new(), notify: Notify::new() });
        // More than lanes have connections, so that one pause of the server does not replace them
        // all.
        let most_timeouts = connections.saturating_add(OTHER_LANES + 1).max(MAX_TIMEOUTS);
        // Under load the connections of checks are never free: a lane takes its connection again
        // before another task can.
        let connections = connections.saturating_add(OTHER_LANES + QUESTIONS);
        let path = Arc::new(PathHealth {
            timeouts: AtomicU32::new(0),
            most_timeouts,
            generation: AtomicU32::new(0),
        });
        let pool = bb8::Pool::builder()
            .max_size(connections)
            // In RESP3 a dead connection reports itself, and in RESP2 an idle one is tried at
            // checkout.
            .test_on_check_out(false)
            // Connections are not closed for their age: the next request would have to wait for
            // another.
            .idle_timeout(None)
            .max_lifetime(None)
            // Waiting callers fail at once.
            .retry_connection(false)
            .connection_timeout(connecting.timeouts.connect.saturating_mul(2))
            .error_sink(Box::new(Sink(Arc::clone(&failures))))
            .build_unchecked(Manager {
                source,
                connecting,
                has_resp3: AtomicBool::new(false),
                sharding: ShardingCheck::new(prefix, false),
                path,
                failures: Arc::clone(&failures),
            });
        Pool { pool, failures, freed: Notify::new() }
    }

    pub(super) async fn checkout(&self) -> Result<Checkout<'_>, Error> {
        loop {
            if let Err(error) = self.failures.backoff.check()
                && self.pool.state().idle_connections == 0
            {
                self.wait_for_another(error).await?;
                continue;
            }
            let failure = self.failures.notify.notified();
            tokio::pin!(failure);
            // Enabled before the pool is asked, so that no failure in between is missed.
            failure.as_mut().enable();
            let checkout = tokio::select! {
                biased;
                checkout = self.pool.get() => checkout,
                () = failure => {
                    self.wait_for_another(self.failures.last()).await?;
                    continue;
                }
            };
            let mut checkout = checkout.map_err(|_| self.failures.last())?;
            if checkout.is_usable() && checkout.answers_after_idling().await && checkout.keeps_login().await {
                return Ok(checkout);
            }
            checkout.broken = true;
        }
    }

    /// If connecting fails while other connections work, waits until one of them is returned, so
    /// that they stay useful. Fails if there are none.
    async fn wait_for_another(&self, error: Error) -> Result<(), Error> {
        let freed = self.freed.notified();
        tokio::pin!(freed);
        freed.as_mut().enable();
        let state = self.pool.state();
        match (state.connections, state.idle_connections) {
            (0, _) => Err(error),
            (_, 0) => {
                // Bounded, since the task that has the connection may be dropped.
                let _ = timeout(RECHECK, freed).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn run(&self, mut checkout: Checkout<'_>, build: Build<'_>) -> Result<Value, Error> {
        let mut resent = 0;
        loop {
            let mut late = None;
            match checkout.run(build, &mut late).await {
                Some(Err(error)) if is_replica(&error) && resent < MAX_RESENDS => {
                    // The master was demoted. A new connection leads to the new master.
                    resent += 1;
                    drop(checkout);
                    checkout = self.checkout().await.map_err(Error::unsent)?;
                }
                result => {
                    if let Some(Err(error)) = &result
                        && is_replica(error)
                    {
                        // There is no new master yet, which counts as a failure to connect.
                        self.failures.backoff.failed(Cause::Redis(error.clone()).into());
                    }
                    drop(checkout);
                    self.freed.notify_one();
                    return Ok(result.ok_or(Cause::Late)?.map_err(|error| cause(error, late))?);
                }
            }
        }
    }
}

/// Notifies callers that wait for a connection when connecting fails.
struct Failures {
    backoff: Backoff,
    notify: Notify,
}

impl Failures {
    fn last(&self) -> Error {
        self.backoff.last().unwrap_or_else(|| Cause::NoConnection.into())
    }
}

struct Sink(Arc<Failures>);

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

impl ErrorSink<RedisError> for Sink {
    fn sink(&self, error: RedisError) {
        self.0.backoff.failed(Cause::Redis(error).into());
        self.0.notify.notify_waiters();
    }

    fn boxed_clone(&self) -> Box<dyn ErrorSink<RedisError>> {
        Box::new(Sink(Arc::clone(&self.0)))
    }
}

/// The health of the network path that all connections share. If the path silently drops packets,
/// or leads to a replica, all connections are replaced at once. One after another would take many
/// times as long.
struct PathHealth {
    /// How many calls in a row were not answered in time.
    timeouts: AtomicU32,
    most_timeouts: u32,
    /// How often all connections were replaced. Those of an earlier generation are not used.
    generation: AtomicU32,
}

impl PathHealth {
    fn answered(&self) {
        if self.timeouts.load(Ordering::Relaxed) > 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    fn timed_out(&self, generation: u32) {
        if generation == self.generation.load(Ordering::Relaxed)
            && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= self.most_timeouts
        {
            self.timeouts.store(0, Ordering::Relaxed);
            self.replace_all(generation);
        }
    }

    /// Replaces the connections of this generation. Later ones stay.
    fn replace_all(&self, generation: u32) {
        let _ = self.generation.compare_exchange(
            generation,
            generation.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

pub(crate) struct Manager {
    source: ServerSource,
    connecting: Connecting,
    /// Whether the server has spoken RESP3.
    has_resp3: AtomicBool,
    sharding: ShardingCheck,
    path: Arc<PathHealth>,
    failures: Arc<Failures>,
}

/// How connections are made.
pub(super) enum ServerSource {
    Server(ConnectionInfo),
    Sentinels(Sentinels),
}

impl Manager {
    /// Some proxies close the connection on `HELLO`, so RESP2 is tried next. If the server has
    /// spoken RESP3 before, it is going down, and a second attempt would only add to its load.
    async fn open_server(&self, info: &ConnectionInfo) -> Result<Opened, RedisError> {
        let opened = match open(info.clone(), self.connecting.clone()).await {
            Err(error) if error.is_connection_dropped() && !self.has_resp3.load(Ordering::Relaxed) => {
                open_resp2(info.clone(), self.connecting.clone()).await?
            }
            opened => opened?,
        };
        if let ConnectionEnd::Reported(_) = opened.end {
            self.has_resp3.store(true, Ordering::Relaxed);
        }
        Ok(opened)
    }
}

impl ManageConnection for Manager {
    type Connection = Conn;
    type Error = RedisError;

    async fn connect(&self) -> Result<Conn, RedisError> {
        let generation = self.path.generation.load(Ordering::Relaxed);
        let Opened { mut connection, end, login } = match &self.source {
            ServerSource::Server(info) => self.open_server(info).await?,
            ServerSource::Sentinels(sentinels) => sentinels.connect().await?,
        };
        self.sharding.run(&mut connection).await?;
        let path = Arc::clone(&self.path);
        Ok(Conn {
            inner: connection,
            end,
            login,
            broken: false,
            timeouts: 0,
            path,
            generation,
            unproven: Some(Arc::clone(&self.failures)),
            limits: self.connecting.timeouts,
            idling: Idling::new(),
        })
    }

    async fn is_valid(&self, conn: &mut Conn) -> Result<(), RedisError> {
        ping(&mut conn.inner).await
    }

    fn has_broken(&self, conn: &mut Conn) -> bool {
        !conn.is_usable()
    }
}

pub(crate) struct Conn {
    inner: MultiplexedConnection,
    end: ConnectionEnd,
    login: Option<Login>,
    broken: bool,
    /// How many calls in a row timed out.
    timeouts: u32,
    path: Arc<PathHealth>,
    /// The path's generation when this connection was made.
    generation: u32,
    /// Ends the backoff at this connection's first answer. Answers over older connections do not
    /// show that connecting works.
    unproven: Option<Arc<Failures>>,
    limits: Timeouts,
    idling: Idling,
}

impl Conn {
    fn is_usable(&self) -> bool {
        let is_outdated = self.generation != self.path.generation.load(Ordering::Relaxed);
        !(self.broken || is_outdated || self.end.is_reported())
    }

    async fn answers_after_idling(&mut self) -> bool {
        self.idling.is_answered(&self.end, &mut self.inner).await
    }

    /// Authenticates again before its token ends. True for all others.
    async fn keeps_login(&mut self) -> bool {
        Login::is_kept(&mut self.login, &mut self.inner, self.limits).await
    }

    /// Returns `None` if no caller waits any more. Nothing was executed then.
    async fn run(
        &mut self,
        build: Build<'_>,
        late: &mut Option<LateAnswer>,
    ) -> Option<Result<Value, RedisError>> {
        let mut result = query(&self.inner, build(Text::Hash)?, self.limits.response, late).await;
        if let Err(error) = &result
            && server_kind(error) == Some(ServerErrorKind::NoScript)
        {
            result = query(&self.inner, build(Text::Source)?, self.limits.response, late).await;
        }
        match CallOutcome::of(&result) {
            CallOutcome::Answered if result.as_ref().is_err_and(is_replica) => {
                self.broken = true;
                self.path.replace_all(self.generation);
            }
            CallOutcome::Answered => self.answered(),
            CallOutcome::TimedOut => {
                self.timeouts += 1;
                self.broken = self.timeouts >= MAX_TIMEOUTS;
                self.path.timed_out(self.generation);
            }
            CallOutcome::Ended => self.broken = true,
        }
        Some(result)
    }

    fn answered(&mut self) {
        self.timeouts = 0;
        self.path.answered();
        if let Some(failures) = self.unproven.take() {
            failures.backoff.succeeded();
        }
    }
}
