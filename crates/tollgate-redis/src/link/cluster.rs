//! A Cluster: one connection to each of its nodes, kept by the client of the `redis` crate.
//!
//! That client is told never to send anything again by itself: it counts redirections and lost connections alike, and after a
//! lost connection a call may have been executed. Redirections are followed here.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::cluster::{ClusterClient, ClusterClientBuilder};
use bb8_redis::redis::cluster_async::ClusterConnection;
use bb8_redis::redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use bb8_redis::redis::{
    ConnectionInfo, ErrorKind, Pipeline, ProtocolVersion, RedisError, ServerErrorKind, Value,
};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tollgate_core::{Clock, Timestamp};

use super::backoff::Backoff;
use super::{Build, Text, Timeouts, is_replica, tcp_settings};
use crate::Error;
use crate::error::Cause;
use crate::tls::Certificates;

/// So often a call that was certainly not executed is sent once more. While a slot moves, or a replica takes over, some rounds
/// pass.
const RESENDS: u32 = 8;

/// What is waited before a node is asked again that has nothing better to say; each further time doubles it, up to 40 ms.
const PAUSE: Duration = Duration::from_millis(5);

/// So many answers that did not come in time, and all connections are made anew: the client keeps one to a node that hangs, and
/// goes on asking it, when another has long taken over.
const TIMEOUTS: u32 = 3;

pub(crate) struct Cluster {
    client: ClusterClient,
    connections: Arc<Mutex<Option<Connections>>>,
    timeouts: Timeouts,
    backoff: Backoff,
    clock: Clock,
}

struct Connections {
    client: ClusterConnection,
    /// When they were made, or the last attempt to make them anew began.
    since: Timestamp,
    /// How many answers have not come in time since.
    timeouts: u32,
}

/// All connections of a cluster.
pub(crate) struct Handle<'a> {
    cluster: &'a Cluster,
    client: ClusterConnection,
}

impl Cluster {
    pub(super) fn new(
        nodes: Vec<ConnectionInfo>,
        certificates: &Certificates,
        timeouts: Timeouts,
    ) -> Result<Cluster, Error> {
        let client = ClusterClientBuilder::new(nodes)
            .retries(0)
            // By this it hears of a connection that ends while nobody uses it, and replaces that before somebody does.
            .use_protocol(ProtocolVersion::RESP3)
            .connection_timeout(timeouts.connect)
            .response_timeout(timeouts.response)
            .tcp_settings(tcp_settings());
        let client = certificates.of_cluster(client).build()?;
        let (backoff, clock) = (Backoff::new(), Clock::system());
        Ok(Cluster { client, connections: Arc::default(), timeouts, backoff, clock })
    }

    pub(super) async fn handle(&self) -> Result<Handle<'_>, Error> {
        let mut connections = self.connections.lock().await;
        if let Some(connections) = &*connections {
            return Ok(Handle { cluster: self, client: connections.client.clone() });
        }
        self.backoff.check()?;
        let connected = timeout(self.timeouts.all_nodes(), self.client.get_async_connection()).await;
        let connected =
            connected.map_or_else(|_| Err(Cause::NoConnection.into()), |connected| Ok(connected?));
        match connected {
            Ok(client) => {
                self.backoff.succeeded();
                let since = self.clock.now();
                *connections = Some(Connections { client: client.clone(), since, timeouts: 0 });
                Ok(Handle { cluster: self, client })
            }
            Err(error) => {
                self.backoff.failed(Error::clone(&error));
                Err(error)
            }
        }
    }

    /// Hears of an answer that did not come in time. Connections are not made anew all the time, of nodes that are slow rather
    /// than gone; and nobody waits for that: nodes that answer go on being asked over the connections that there are.
    async fn timed_out(&self) {
        let mut connections = self.connections.lock().await;
        let Some(kept) = &mut *connections else { return };
        kept.timeouts += 1;
        let now = self.clock.now();
        let enough = kept.since.saturating_add(self.timeouts.response.saturating_mul(TIMEOUTS));
        if kept.timeouts < TIMEOUTS || now < enough {
            return;
        }
        (kept.timeouts, kept.since) = (0, now);
        let (client, limit) = (self.client.clone(), self.timeouts.all_nodes());
        let connections = Arc::clone(&self.connections);
        tokio::spawn(async move {
            if let Ok(Ok(client)) = timeout(limit, client.get_async_connection()).await
                && let Some(kept) = &mut *connections.lock().await
            {
                kept.client = client;
            }
        });
    }
}

/// Where a call goes.
enum Target {
    /// The master of the slot, as far as the client knows.
    Owner,
    /// The node that another named.
    Node { host: String, port: u16, asking: bool },
}

impl Handle<'_> {
    pub(super) async fn run(mut self, slot: u16, build: Build<'_>, alone: bool) -> Result<Value, Error> {
        let (mut target, mut text, mut pause) = (Target::Owner, Text::Hash, PAUSE);
        let mut resent = 0;
        loop {
            let error = match self.send(slot, &target, build, text).await {
                Ok(value) => return Ok(value),
                Err(error) if error.is_timeout() => {
                    self.cluster.timed_out().await;
                    return Err(error.into());
                }
                Err(error) if resent == RESENDS => return Err(unsettled(error).into()),
                Err(error) => error,
            };
            resent += 1;
            // Each of these says that nothing was executed.
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::TryAgain) if !alone => return Err(error.into()),
                ErrorKind::Server(ServerErrorKind::NoScript) => text = Text::Whole,
                ErrorKind::Server(ServerErrorKind::Moved) => target = named(&error, false)?,
                ErrorKind::Server(ServerErrorKind::Ask) => target = named(&error, true)?,
                kind if kind == ErrorKind::Server(ServerErrorKind::TryAgain)
                    || is_unconnected(&error)
                    || is_replica(&error) =>
                {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE * 8);
                    target = Target::Owner;
                }
                _ => return Err(error.into()),
            }
        }
    }

    async fn send(
        &mut self,
        slot: u16,
        target: &Target,
        build: Build<'_>,
        text: Text,
    ) -> Result<Value, RedisError> {
        let node = match target {
            Target::Owner => SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master)),
            Target::Node { host, port, .. } => {
                SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port }
            }
        };
        if let Target::Node { asking: true, .. } = target {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("ASKING").add_command(build(text));
            let mut answers = self.client.route_pipeline(pipeline, 0, 2, node).await?;
            return answers.pop().unwrap_or(Value::Nil).extract_error();
        }
        self.client.route_command(build(text), RoutingInfo::SingleNode(node)).await?.extract_error()
    }
}

/// Whether there is no connection to the node that it was to be sent to. Without a node's name this may befall what was sent
/// already: the client tells all who wait that it has no connection left.
fn is_unconnected(error: &RedisError) -> bool {
    error.kind() == ErrorKind::ClusterConnectionNotFound && error.detail().is_some()
}

/// What is told where redirections do not end. Nodes name one that has died until they give it up, some seconds later: that
/// passes by itself, unlike the redirection of who takes a cluster for a single server.
fn unsettled(error: RedisError) -> RedisError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
            (kind, "the node that has the slot by the others' account cannot be reached").into()
        }
        _ => error,
    }
}

/// The node that a redirection names.
fn named(error: &RedisError, asking: bool) -> Result<Target, Error> {
    let address = error.redirect_node().and_then(|(address, _)| address.rsplit_once(':'));
    let node = address.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    node.map(|(host, port)| Target::Node { host, port, asking }).ok_or_else(|| error.clone().into())
}
