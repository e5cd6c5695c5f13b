//! A Cluster: a connection to each master, and the map of hash slots.
//!
//! The cluster client of the `redis` crate is not used, for two reasons. It connects to all nodes
//! in one step, and again after each redirection, while all calls wait. So a machine that silently
//! drops packets would hold up calls to all others. It also retries calls that may have been
//! executed.
//!
//! Here each node has its own connection and its own failures. A refused call is sent again to the
//! right node, and the map of hash slots is refreshed in the background.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bb8_redis::redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value, cmd};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_core::{Clock, Timestamp};

use super::backoff::Backoff;
use super::call::{Build, Moving, Text, cause, is_replica};
use super::hash_slots::{HASH_SLOTS, HashSlots, Range, announced_by, covered, ranges, redirected};
use super::node::{ClusterNode, NodeConn};
use super::open::{Address, Connecting, at};
use super::proxy_check::ShardingCheck;
use super::topology::{ClusterTopology, NodeAddresses};
use crate::error::{Cause, Error};

/// How often a call that was not executed is sent again after a pause. That takes several attempts
/// while a hash slot moves or a replica takes over.
const MAX_RETRIES: u32 = 8;

/// The first of these pauses. Each further one is twice as long, up to 40 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The pause between two refreshes of the map. It doubles with each that finds no change.
const MIN_REFRESH_PAUSE: Duration = Duration::from_millis(100);
const MAX_REFRESH_PAUSE: Duration = Duration::from_millis(500);

pub(crate) struct ClusterLink(Arc<ClusterState>);

struct ClusterState {
    /// The nodes of the URL. Other nodes have the settings of the first.
    infos: Vec<ConnectionInfo>,
    /// Where other nodes are reached.
    addresses: NodeAddresses,
    connecting: Connecting,
    /// For a server that does not name its nodes.
    sharding: Arc<ShardingCheck>,
    clock: Clock,
    map: Mutex<ClusterMap>,
    /// Held during the first refresh.
    refreshing: tokio::sync::Mutex<()>,
    /// Between attempts at the first refresh.
    backoff: Backoff,
}

#[derive(Default)]
struct ClusterMap {
    /// `None` until the first refresh.
    hash_slots: Option<HashSlots>,
    /// The ranges that `slots` was made of. Empty after a redirection has changed `slots`.
    ranges: Vec<Range>,
    /// The owners of hash slots, and other nodes that calls were redirected to.
    nodes: BTreeMap<Address, Arc<ClusterNode>>,
    is_refreshing: bool,
    /// The earliest time of the next refresh, and the pause before it.
    next_refresh: Timestamp,
    pause: Duration,
}

/// The connection to the owner of a hash slot, for a call.
pub(crate) struct Handle<'a> {
    cluster: &'a ClusterLink,
    node: Arc<ClusterNode>,
    conn: NodeConn,
}

impl ClusterLink {
    /// `prefix` is that of all keys.
    pub(super) fn new(cluster: ClusterTopology, prefix: &str, connecting: Connecting) -> ClusterLink {
        let clock = Clock::system();
        let map = Mutex::new(ClusterMap { next_refresh: Timestamp::EPOCH, ..ClusterMap::default() });
        ClusterLink(Arc::new(ClusterState {
            infos: cluster.nodes,
            addresses: cluster.addresses,
            connecting,
            sharding: Arc::new(ShardingCheck::new(prefix, true)),
            clock,
            map,
            refreshing: tokio::sync::Mutex::default(),
            backoff: Backoff::new(),
        }))
    }

    pub(super) async fn handle(&self, hash_slot: u16) -> Result<Handle<'_>, Error> {
        let node = self.owner(hash_slot).await?;
        self.handle_of(node).await
    }

    async fn handle_of(&self, node: Arc<ClusterNode>) -> Result<Handle<'_>, Error> {
        node.is_wanted.store(true, Ordering::Relaxed);
        match node.connection().await {
            Ok(conn) => Ok(Handle { cluster: self, node, conn }),
            Err(error) => {
                // A replica may have taken over.
                self.refresh_in_background();
                Err(error)
            }
        }
    }

    /// The owners of all hash slots, as a node knows them now.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<ClusterNode>>, Error> {
        self.0.refresh().await?;
        let masters = self.0.map().hash_slots.as_ref().and_then(HashSlots::owners);
        masters.ok_or_else(no_owner)
    }

    /// The owner of a hash slot, as a node knows it now.
    pub(super) async fn master_of(&self, hash_slot: u16) -> Result<Arc<ClusterNode>, Error> {
        self.0.refresh().await?;
        self.owner(hash_slot).await
    }

    /// Checks that a node can be reached at the address that it announces.
    ///
    /// # Errors
    /// If it can be reached only at that of the URL.
    pub(super) async fn check_addresses(&self) -> Result<(), Error> {
        for node in self.0.of_url() {
            let Some(announced) = self.0.announced_by(&node).await else { continue };
            let Err(error) = announced.connection().await else { return Ok(()) };
            // It may have ended meanwhile.
            if self.0.announced_by(&node).await.is_some() {
                let [at, announced] =
                    [&node, &announced].map(|node| format!("{}:{}", node.address.0, node.address.1));
                return Err(Error::config(format!(
                    "the node at {at} announces {announced}, where it cannot be reached: set node_addresses ({error})"
                )));
            }
        }
        Ok(())
    }

    /// The number of the node that owns a hash slot, 0 if it is unknown.
    pub(super) fn number_of_owner(&self, hash_slot: u16) -> u64 {
        self.0
            .map()
            .hash_slots
            .as_ref()
            .and_then(|hash_slots| hash_slots.owner(hash_slot))
            .map_or(0, |node| node.number)
    }

    async fn owner(&self, hash_slot: u16) -> Result<Arc<ClusterNode>, Error> {
        if self.0.map().hash_slots.is_none() {
            self.0.first_refresh().await?;
        }
        let owner =
            self.0.map().hash_slots.as_ref().and_then(|hash_slots| hash_slots.owner(hash_slot).cloned());
        owner.ok_or_else(|| {
            self.refresh_in_background();
            no_owner()
        })
    }

    /// Refreshes the map in a task, unless the last refresh is too recent. No caller waits for it.
    fn refresh_in_background(&self) {
        let mut map = self.0.map();
        let now = self.0.clock.now();
        if map.is_refreshing || now < map.next_refresh {
            return;
        }
        if now > map.next_refresh.saturating_add(MAX_REFRESH_PAUSE) {
            // There was no need to refresh for a while, so this is a new change.
            map.pause = Duration::ZERO;
        }
        map.is_refreshing = true;
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            // If no node answers, the map stays as it is.
            let found_new = state.refresh().await.unwrap_or(false);
            let mut map = state.map();
            let longer = map.pause.saturating_mul(2).clamp(MIN_REFRESH_PAUSE, MAX_REFRESH_PAUSE);
            map.pause = if found_new { MIN_REFRESH_PAUSE } else { longer };
            map.next_refresh = state.clock.now().saturating_add(map.pause);
            map.is_refreshing = false;
        });
    }

    /// Notes the new owner of a hash slot, from a redirection.
    fn moved(&self, hash_slot: u16, to: &Arc<ClusterNode>) {
        let mut map = self.0.map();
        if let Some(hash_slots) = &mut map.hash_slots {
            hash_slots.set_owner(hash_slot, Arc::clone(to));
        }
        map.ranges.clear();
        drop(map);
        self.refresh_in_background();
    }
}

impl ClusterState {
    fn map(&self) -> MutexGuard<'_, ClusterMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that announces this address.
    fn node(&self, map: &mut ClusterMap, announced: &Address) -> Arc<ClusterNode> {
        self.node_at(map, announced, || self.addresses.reached(&announced.0, announced.1))
    }

    fn node_at(
        &self,
        map: &mut ClusterMap,
        address: &Address,
        reached: impl FnOnce() -> Address,
    ) -> Arc<ClusterNode> {
        let info = || at(&self.infos[0], &reached());
        let new = || Arc::new(ClusterNode::new(address.clone(), info(), self.connecting.clone()));
        Arc::clone(map.nodes.entry(address.clone()).or_insert_with(new))
    }

    /// The nodes of the URL, at the addresses there.
    fn of_url(&self) -> Vec<Arc<ClusterNode>> {
        let address = |info: &ConnectionInfo| match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        };
        let mut map = self.map();
        let node = |address: Address| self.node_at(&mut map, &address, || address.clone());
        self.infos.iter().filter_map(address).map(node).collect()
    }

    /// The same node at the address that it announces. `None` if it does not say.
    async fn announced_by(&self, node: &ClusterNode) -> Option<Arc<ClusterNode>> {
        let mut connection = node.connection().await.ok()?;
        let mut id = cmd("CLUSTER");
        id.arg("MYID");
        let Ok(Value::BulkString(id)) = connection.run_without_key(id).await else { return None };
        let answer = connection.hash_slots().await.ok()?;
        let address = announced_by(str::from_utf8(&id).ok()?, &answer, &node.address)?;
        Some(self.node(&mut self.map(), &address))
    }

    /// Makes the map. Concurrent callers wait for the same attempt.
    async fn first_refresh(&self) -> Result<(), Error> {
        let _refreshing = self.refreshing.lock().await;
        if self.map().hash_slots.is_some() {
            return Ok(());
        }
        self.backoff.check()?;
        self.refresh().await.map(drop).inspect_err(|error| self.backoff.failed(error.clone()))
    }

    /// Refreshes the map from a node that serves. If that fails, asks all nodes at once, and takes
    /// the first good answer.
    ///
    /// Returns whether the map has changed.
    async fn refresh(&self) -> Result<bool, Error> {
        // A random node, so that not all processes ask the same one.
        let chance = RandomState::new();
        let serving = self
            .map()
            .nodes
            .values()
            .filter(|node| node.serves())
            .cloned()
            .min_by_key(|node| chance.hash_one(&node.address));
        if let Some(node) = serving
            && let Ok(ranges) = hash_slots_of(&node, &self.sharding).await
        {
            return self.learn(ranges);
        }
        // Those of the URL may own no hash slot, and then the map has dropped them.
        self.of_url();
        let mut asked = JoinSet::new();
        for node in self.map().nodes.values().cloned() {
            let sharding = Arc::clone(&self.sharding);
            asked.spawn(async move { (hash_slots_of(&node, &sharding).await, node) });
        }
        let (mut fallback, mut failure) = (None, None);
        while let Some(answer) = asked.join_next().await {
            match answer {
                // A node that reports the cluster down may be in a minority, and one that does not
                // know all hash slots may have just joined. Another node may know better.
                Ok((Ok(ranges), node)) if node.reports_down() || covered(&ranges) < HASH_SLOTS => {
                    let weight = (!node.reports_down(), covered(&ranges));
                    if fallback.as_ref().is_none_or(|(most, _)| weight > *most) {
                        fallback = Some((weight, ranges));
                    }
                }
                Ok((Ok(ranges), _)) => return self.learn(ranges),
                // A configuration error is more important than a temporary one.
                Ok((Err(error), _)) if failure.is_none() || error.is_configuration() => failure = Some(error),
                _ => {}
            }
        }
        match fallback {
            Some((_, ranges)) => self.learn(ranges),
            None => {
                Err(failure
                    .unwrap_or_else(|| Error::config("a URL of a cluster must name at least one node")))
            }
        }
    }

    fn learn(&self, ranges: Vec<Range>) -> Result<bool, Error> {
        let masters = || ranges.iter().filter_map(|range| range.master.as_ref());
        // Under one lock with the hash slots: another refresh must not drop a master in between.
        let mut map = self.map();
        for master in masters() {
            self.node(&mut map, master);
        }
        map.nodes.retain(|address, node| {
            if masters().any(|master| master == address) {
                return true;
            }
            // A node without hash slots may belong to another cluster by now. It is kept for one
            // refresh if calls were redirected to it.
            node.retire();
            node.is_wanted.swap(false, Ordering::Relaxed)
        });
        if map.ranges == ranges {
            return Ok(false);
        }
        map.hash_slots = Some(HashSlots::new(&ranges, &map.nodes));
        map.ranges = ranges;
        Ok(true)
    }
}

fn no_owner() -> Error {
    let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
    Cause::Redis((kind, "no node owns the hash slot").into()).into()
}

async fn hash_slots_of(node: &ClusterNode, sharding: &ShardingCheck) -> Result<Vec<Range>, Error> {
    let mut connection = node.connection().await?;
    let answer = match connection.hash_slots().await {
        Err(error) if names_no_nodes(&error) => {
            sharding.run(connection.inner()).await.map_err(Cause::Redis)?;
            return Ok(vec![Range::whole(&node.address)]);
        }
        answer => answer.map_err(Cause::Redis)?,
    };
    ranges(&answer, &node.address).ok_or_else(|| {
        let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
        Cause::Redis((kind, "a node does not know the owners of the hash slots").into()).into()
    })
}

/// Whether a server refuses to name its nodes, and divides keys into hash slots behind one address:
/// Redis Enterprise, and Azure Managed Redis with the policy "Enterprise".
fn names_no_nodes(error: &RedisError) -> bool {
    let text = error.to_string().to_ascii_lowercase();
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError)
        && ["command is not allowed", "unknown command"].iter().any(|sign| text.contains(sign))
}

impl Handle<'_> {
    pub(super) async fn run(
        mut self,
        hash_slot: u16,
        build: Build<'_>,
        moving: Moving<'_>,
    ) -> Result<Value, Error> {
        let (mut asking, mut text, mut pause) = (false, Text::Hash, FIRST_PAUSE);
        let (mut retries, mut was_redirected) = (0, false);
        loop {
            let Some(cmd) = build(text) else { return Err(Cause::Late.into()) };
            let mut late = None;
            let error = match self.conn.run(cmd, asking, &mut late).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // Each of these errors means that nothing was executed.
            let kind = error.kind();
            let redirects = match kind {
                ErrorKind::Server(ServerErrorKind::NoScript) if text == Text::Hash => {
                    text = Text::Source;
                    continue;
                }
                ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => true,
                ErrorKind::Server(ServerErrorKind::TryAgain) => {
                    let Some(note) = moving else { return Err(Cause::Redis(error).into()) };
                    note();
                    false
                }
                _ if is_replica(&error) => false,
                // The call may have been executed, or the cluster is down.
                _ => {
                    let is_lost = error.is_timeout() || error.is_io_error() || error.is_unrecoverable_error();
                    if is_lost || kind == ErrorKind::Server(ServerErrorKind::ClusterDown) {
                        // A replica may have taken over by the next call.
                        self.cluster.refresh_in_background();
                    }
                    return Err(cause(error, late).into());
                }
            };
            // A redirection is followed at once, unless it follows another. Two nodes may redirect
            // to each other for a while after a hash slot has moved.
            if !redirects || was_redirected {
                if retries == MAX_RETRIES {
                    return Err(Cause::Redis(unsettled(error)).into());
                }
                retries += 1;
                self.cluster.refresh_in_background();
                sleep(pause).await;
                pause = (pause * 2).min(FIRST_PAUSE * 8);
            }
            was_redirected = redirects && !was_redirected;
            asking = kind == ErrorKind::Server(ServerErrorKind::Ask);
            let next =
                if redirects { self.redirected(error).await } else { self.cluster.handle(hash_slot).await };
            self = next.map_err(Error::unsent)?;
            if redirects && !asking {
                self.cluster.moved(hash_slot, &self.node);
            }
        }
    }

    /// A connection to the node that a redirection names.
    async fn redirected(self, error: RedisError) -> Result<Self, Error> {
        let named = error.redirect_node().and_then(|(to, _)| redirected(to, &self.node.address));
        let Some(address) = named else {
            self.cluster.refresh_in_background();
            return Err(Cause::Redis(unsettled(error)).into());
        };
        let state = &self.cluster.0;
        let node = state.node(&mut state.map(), &address);
        self.cluster.handle_of(node).await
    }
}

/// Replaces a redirection by an error that is not a configuration error: nodes disagree only for a
/// while.
fn unsettled(error: RedisError) -> RedisError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
            (kind, "the nodes do not agree on the owner of the hash slot").into()
        }
        _ => error,
    }
}
