//! A Cluster: a connection to each of its masters, and who of them has which slot.
//!
//! The client of the `redis` crate is not used here. It connects to all nodes in one step, during which no call of any slot goes
//! on, and takes that step again whenever a node redirects: one machine that is gone, and answers nobody, would hold up all who
//! ask the others. And it would send again what may have been executed. Here each node has a connection, and failures, of its
//! own; calls that were refused are sent again to where they belong; and the map of slots is made anew beside that.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bb8_redis::redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_core::{Clock, Timestamp};

use super::backoff::Backoff;
use super::call::{Build, Text, is_replica};
use super::node::{Conn, Node};
use super::open::{Address, Timeouts, at};
use super::slots::{Range, SLOTS, Slots, covered, ranges, redirected};
use crate::error::{Cause, Error};

/// So often a call that was certainly not executed waits and is sent once more. While a slot moves, or a replica takes over, some
/// retries pass.
const MAX_RETRIES: u32 = 8;

/// What is waited in the first of them; each further one doubles it, up to 40 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The least time between two looks at who has which slot. It doubles with each that finds nothing new, up to the longest.
const MIN_REFRESH_PAUSE: Duration = Duration::from_millis(100);
const MAX_REFRESH_PAUSE: Duration = Duration::from_millis(500);

pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    /// How to connect to the nodes of the URL; to the others, in the same way at another address.
    infos: Vec<ConnectionInfo>,
    timeouts: Timeouts,
    clock: Clock,
    map: Mutex<ClusterMap>,
    /// Held by who looks for the first time.
    refreshing: tokio::sync::Mutex<()>,
    /// Between attempts at that.
    backoff: Backoff,
}

#[derive(Default)]
struct ClusterMap {
    /// None, as long as nobody has told.
    slots: Option<Slots>,
    /// What they were made of; nothing, once a redirection has changed them.
    ranges: Vec<Range>,
    /// Those of the map, and those that calls are redirected to.
    nodes: BTreeMap<Address, Arc<Node>>,
    is_refreshing: bool,
    /// When to look again at the earliest, and how long after the last look that is.
    next_refresh: Timestamp,
    pause: Duration,
}

/// The connection to the owner of a slot, for a call.
pub(crate) struct Handle<'a> {
    cluster: &'a Cluster,
    node: Arc<Node>,
    conn: Conn,
}

impl Cluster {
    pub(super) fn new(infos: Vec<ConnectionInfo>, timeouts: Timeouts) -> Cluster {
        let clock = Clock::system();
        let map = Mutex::new(ClusterMap { next_refresh: Timestamp::EPOCH, ..ClusterMap::default() });
        Cluster(Arc::new(Inner {
            infos,
            timeouts,
            clock,
            map,
            refreshing: tokio::sync::Mutex::default(),
            backoff: Backoff::new(),
        }))
    }

    pub(super) async fn handle(&self, slot: u16) -> Result<Handle<'_>, Error> {
        let node = self.owner(slot).await?;
        self.handle_of(node).await
    }

    async fn handle_of(&self, node: Arc<Node>) -> Result<Handle<'_>, Error> {
        node.is_wanted.store(true, Ordering::Relaxed);
        match node.connection().await {
            Ok(conn) => Ok(Handle { cluster: self, node, conn }),
            Err(error) => {
                // Another may have taken its place.
                self.refresh_in_background();
                Err(error)
            }
        }
    }

    async fn owner(&self, slot: u16) -> Result<Arc<Node>, Error> {
        if self.0.map().slots.is_none() {
            self.0.first_refresh().await?;
        }
        let owner = self.0.map().slots.as_ref().and_then(|slots| slots.owner(slot).cloned());
        owner.ok_or_else(|| {
            self.refresh_in_background();
            let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
            RedisError::from((kind, "no node has that slot")).into()
        })
    }

    /// Looks again at who has which slot, beside whatever goes on: not more often than now and then, and nobody waits for it.
    fn refresh_in_background(&self) {
        let mut map = self.0.map();
        let now = self.0.clock.now();
        if map.is_refreshing || now < map.next_refresh {
            return;
        }
        if now > map.next_refresh.saturating_add(MAX_REFRESH_PAUSE) {
            // It was quiet for a while: this is something else.
            map.pause = Duration::ZERO;
        }
        map.is_refreshing = true;
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            // What is known already stays, where nobody can be asked.
            let found_new = inner.refresh().await.unwrap_or(false);
            let mut map = inner.map();
            let longer = map.pause.saturating_mul(2).clamp(MIN_REFRESH_PAUSE, MAX_REFRESH_PAUSE);
            map.pause = if found_new { MIN_REFRESH_PAUSE } else { longer };
            map.next_refresh = inner.clock.now().saturating_add(map.pause);
            map.is_refreshing = false;
        });
    }

    /// The node that has a slot by the account of another.
    fn moved(&self, slot: u16, to: &Arc<Node>) {
        let mut map = self.0.map();
        if let Some(slots) = &mut map.slots {
            slots.set_owner(slot, Arc::clone(to));
        }
        map.ranges.clear();
        drop(map);
        self.refresh_in_background();
    }
}

impl Inner {
    fn map(&self) -> MutexGuard<'_, ClusterMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, address: &Address) -> Arc<Node> {
        let mut map = self.map();
        if let Some(node) = map.nodes.get(address) {
            return Arc::clone(node);
        }
        let info = at(&self.infos[0], address);
        let node = Arc::new(Node::new(address.clone(), info, self.timeouts));
        map.nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// Looks for the first time; whoever comes meanwhile waits for the same.
    async fn first_refresh(&self) -> Result<(), Error> {
        let _refreshing = self.refreshing.lock().await;
        if self.map().slots.is_some() {
            return Ok(());
        }
        self.backoff.check()?;
        self.refresh().await.map(drop).inspect_err(|error| self.backoff.failed(error.clone()))
    }

    /// Asks who has which slot: one of those that serve; or else everybody at once, of whom the first that answers is heard.
    ///
    /// Returns whether that is new.
    async fn refresh(&self) -> Result<bool, Error> {
        // Not the same each time, nor that of all processes.
        let chance = RandomState::new();
        let serving = self
            .map()
            .nodes
            .values()
            .filter(|node| node.serves())
            .cloned()
            .min_by_key(|node| chance.hash_one(&node.address));
        if let Some(node) = serving
            && let Ok(ranges) = slots_of(&node).await
        {
            return self.learn(ranges);
        }
        for info in &self.infos {
            if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = info.addr() {
                self.node(&(host.clone(), *port));
            }
        }
        let mut asked = JoinSet::new();
        for node in self.map().nodes.values().cloned() {
            asked.spawn(async move { (slots_of(&node).await, node) });
        }
        let (mut fallback, mut failure) = (None, None);
        while let Some(answer) = asked.join_next().await {
            match answer {
                // One that calls the cluster down may have lost the others, and one that does not know who has each slot has just
                // come: another may know better.
                Ok((Ok(ranges), node)) if node.reports_down() || covered(&ranges) < SLOTS => {
                    let weight = (!node.reports_down(), covered(&ranges));
                    if fallback.as_ref().is_none_or(|(most, _)| weight > *most) {
                        fallback = Some((weight, ranges));
                    }
                }
                Ok((Ok(ranges), _)) => return self.learn(ranges),
                // What has to be mended is told rather than what may pass.
                Ok((Err(error), _)) if failure.is_none() || error.is_configuration() => failure = Some(error),
                _ => {}
            }
        }
        match fallback {
            Some((_, ranges)) => self.learn(ranges),
            None => {
                Err(failure.unwrap_or_else(|| Error::config("the URL of a cluster names none of its nodes")))
            }
        }
    }

    fn learn(&self, ranges: Vec<Range>) -> Result<bool, Error> {
        let masters = || ranges.iter().filter_map(|range| range.master.as_ref());
        for master in masters() {
            self.node(master);
        }
        let mut map = self.map();
        map.nodes.retain(|address, node| {
            if masters().any(|master| master == address) {
                return true;
            }
            // Whoever has no slot any more may belong to another cluster by the time that somebody looks again.
            node.retire();
            node.is_wanted.swap(false, Ordering::Relaxed)
        });
        if map.ranges == ranges {
            return Ok(false);
        }
        map.slots = Some(Slots::new(&ranges, &map.nodes));
        map.ranges = ranges;
        Ok(true)
    }
}

async fn slots_of(node: &Node) -> Result<Vec<Range>, Error> {
    let answer = node.connection().await?.slots().await?;
    ranges(&answer, &node.address).ok_or_else(|| {
        let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
        RedisError::from((kind, "a node does not know who has which slot")).into()
    })
}

impl Handle<'_> {
    pub(super) async fn run(mut self, slot: u16, build: Build<'_>, alone: bool) -> Result<Value, Error> {
        let (mut asking, mut text, mut pause) = (false, Text::Hash, FIRST_PAUSE);
        let (mut retries, mut was_redirected) = (0, false);
        loop {
            let Some(cmd) = build(text) else { return Err(Cause::Late.into()) };
            let error = match self.conn.run(cmd, asking).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // Each of these says that nothing was executed.
            let kind = error.kind();
            let redirects = match kind {
                ErrorKind::Server(ServerErrorKind::NoScript) if text == Text::Hash => {
                    text = Text::Whole;
                    continue;
                }
                ErrorKind::Server(ServerErrorKind::TryAgain) if !alone => return Err(error.into()),
                ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => true,
                ErrorKind::Server(ServerErrorKind::TryAgain) => false,
                _ if is_replica(&error) => false,
                // It may have been executed, or the cluster is down.
                _ => {
                    let is_lost = error.is_timeout() || error.is_io_error() || error.is_unrecoverable_error();
                    if is_lost || kind == ErrorKind::Server(ServerErrorKind::ClusterDown) {
                        // Who comes next may find another in its place.
                        self.cluster.refresh_in_background();
                    }
                    return Err(error.into());
                }
            };
            // A redirection is followed at once, unless it comes of another: nodes may name each other for a while, when a slot
            // has just moved.
            if !redirects || was_redirected {
                if retries == MAX_RETRIES {
                    return Err(unsettled(error).into());
                }
                retries += 1;
                self.cluster.refresh_in_background();
                sleep(pause).await;
                pause = (pause * 2).min(FIRST_PAUSE * 8);
            }
            was_redirected = redirects && !was_redirected;
            asking = kind == ErrorKind::Server(ServerErrorKind::Ask);
            self = if redirects { self.redirected(error).await? } else { self.cluster.handle(slot).await? };
            if redirects && !asking {
                self.cluster.moved(slot, &self.node);
            }
        }
    }

    /// A connection to the node that a redirection names.
    async fn redirected(self, error: RedisError) -> Result<Self, Error> {
        let named = error.redirect_node().and_then(|(to, _)| redirected(to, &self.node.address));
        let Some(address) = named else {
            self.cluster.refresh_in_background();
            return Err(unsettled(error).into());
        };
        self.cluster.handle_of(self.cluster.0.node(&address)).await
    }
}

/// What is told where redirections do not end: that passes by itself, unlike the redirection of who takes a cluster for a single
/// server.
fn unsettled(error: RedisError) -> RedisError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
            (kind, "the nodes do not agree on who has the slot").into()
        }
        _ => error,
    }
}
