//! Opening a connection: protocol, name, settings, and how its end is noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bb8_redis::redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use bb8_redis::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use bb8_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo,
    PushKind, RedisError, ServerErrorKind, Value, cmd,
};
use tollgate_core::{Clock, Timestamp};

use super::call::{Timeouts, server_kind};
use super::credentials::{CredentialsSource, Login, is_refused};

/// A host and a port.
pub(super) type Address = (String, u16);

/// How to connect, whatever the address.
#[derive(Clone)]
pub(crate) struct Connecting {
    pub(crate) timeouts: Timeouts,
    /// `None` for those of the URL.
    pub(crate) credentials: Option<Arc<CredentialsSource>>,
}

/// A connection that has answered.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) end: ConnectionEnd,
    /// If it ends before the connection.
    pub(super) login: Option<Login>,
}

/// How the end of an idle connection is noticed.
#[derive(Clone)]
pub(super) enum ConnectionEnd {
    /// Set when the connection ends. Only RESP3 reports that.
    Reported(Arc<AtomicBool>),
    /// RESP2: a connection that was idle is tried with a `PING` before it is used.
    Unreported,
}

impl ConnectionEnd {
    pub(super) fn is_reported(&self) -> bool {
        matches!(self, ConnectionEnd::Reported(dead) if dead.load(Ordering::Acquire))
    }
}

/// A RESP2 connection that was idle for longer is tried before it is used.
const MAX_IDLE: Duration = Duration::from_secs(1);

/// For how long a connection was not used.
pub(super) struct Idling {
    used: Timestamp,
    clock: Clock,
}

impl Idling {
    /// Of a new connection.
    pub(super) fn new() -> Idling {
        let clock = Clock::system();
        Idling { used: clock.now(), clock }
    }

    /// Tries a connection that was idle and would not report its end. True for all others.
    pub(super) async fn is_answered(
        &mut self,
        end: &ConnectionEnd,
        connection: &mut MultiplexedConnection,
    ) -> bool {
        let ConnectionEnd::Unreported = end else { return true };
        let now = self.clock.now();
        let is_idle = now >= self.used.saturating_add(MAX_IDLE);
        let is_answered = !is_idle || ping(connection).await.is_ok();
        // Only then: a caller that leaves meanwhile has not tried it.
        self.used = now;
        is_answered
    }
}

/// Connects in RESP3, or in RESP2 if the other side answers that it has no `HELLO`.
pub(super) async fn open(info: ConnectionInfo, connecting: Connecting) -> Result<Opened, RedisError> {
    logged_in(info, &connecting, open_by_protocol).await
}

/// Connects in RESP2.
pub(super) async fn open_resp2(info: ConnectionInfo, connecting: Connecting) -> Result<Opened, RedisError> {
    logged_in(info, &connecting, open_in_resp2).await
}

/// Opens a connection with the credentials of the source, if there is one. If the server refuses
/// them, the source is asked once more.
async fn logged_in<A: Future<Output = Result<Opened, RedisError>>>(
    info: ConnectionInfo,
    Connecting { timeouts, credentials }: &Connecting,
    open: impl Fn(ConnectionInfo, Timeouts) -> A,
) -> Result<Opened, RedisError> {
    let Some(source) = credentials else { return open(info, *timeouts).await };
    let mut answered = source.current(timeouts.connect).await?;
    let mut opened = open(answered.apply(info.clone()), *timeouts).await;
    if opened.as_ref().is_err_and(is_refused) {
        answered = source.after(&answered, timeouts.connect).await?;
        opened = open(answered.apply(info.clone()), *timeouts).await;
    }
    Ok(Opened { login: answered.login(source, &info), ..opened? })
}

async fn open_by_protocol(info: ConnectionInfo, timeouts: Timeouts) -> Result<Opened, RedisError> {
    if info.redis_settings().protocol() == ProtocolVersion::RESP3 {
        match open_resp3(info.clone(), timeouts).await {
            Err(error) if lacks_hello(&error) => {}
            opened => return opened,
        }
    }
    open_in_resp2(info, timeouts).await
}

async fn open_resp3(info: ConnectionInfo, timeouts: Timeouts) -> Result<Opened, RedisError> {
    let settings = info.redis_settings().clone().set_lib_name("tollgate", env!("CARGO_PKG_VERSION"));
    let dead = Arc::new(AtomicBool::new(false));
    let config = config(timeouts).set_push_sender(DisconnectListener(Arc::clone(&dead)));
    let client = Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp_settings()))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    // For `CLIENT LIST`. A server may refuse it, since the user lacks the permission: then the
    // connection has no name.
    let name = concat!("tollgate:", env!("CARGO_PKG_VERSION"));
    let named: Result<Value, RedisError> =
        cmd("CLIENT").arg("SETNAME").arg(name).query_async(&mut connection).await;
    if let Err(error) = named
        && server_kind(&error).is_none()
    {
        return Err(error);
    }
    Ok(Opened { connection, end: ConnectionEnd::Reported(dead), login: None })
}

async fn open_in_resp2(info: ConnectionInfo, timeouts: Timeouts) -> Result<Opened, RedisError> {
    // Some proxies close a connection that sends a command which they do not know.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    let client = Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp_settings()))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config(timeouts)).await?;
    ping(&mut connection).await?;
    Ok(Opened { connection, end: ConnectionEnd::Unreported, login: None })
}

/// Fails if the server does not answer, or refuses the connection. A missing permission is an
/// answer.
pub(super) async fn ping(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    match cmd("PING").query_async::<Value>(connection).await {
        Err(error) if server_kind(&error) != Some(ServerErrorKind::NoPerm) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the other side is a proxy or server that says it has no `HELLO`.
fn lacks_hello(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::RESP3NotSupported => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            let text = error.to_string().to_ascii_lowercase();
            ["hello", "unknown command", "unsupported", "not supported", "invalid request"]
                .iter()
                .any(|sign| text.contains(sign))
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) | ErrorKind::AuthenticationFailed => false,
        _ => error.code() == Some("NOPROTO"),
    }
}

fn config(timeouts: Timeouts) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeouts.connect))
        .set_response_timeout(Some(timeouts.response))
}

/// Sends every call at once, since a caller waits for each; and notices a route that silently drops
/// packets.
fn tcp_settings() -> TcpSettings {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

/// How to connect to a server at another address, in the same way as to this one.
pub(super) fn at(like: &ConnectionInfo, (host, port): &Address) -> ConnectionInfo {
    let (host, port) = (host.clone(), *port);
    let address = match like.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    like.clone().set_addr(address)
}

struct DisconnectListener(Arc<AtomicBool>);

impl AsyncPushSender for DisconnectListener {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        if info.kind == PushKind::Disconnection {
            self.0.store(true, Ordering::Release);
        }
        Ok(())
    }
}
