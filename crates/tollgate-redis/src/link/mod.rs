//! The way to Redis: connections, and what may be sent again.
//!
//! A call is sent again only where it is certain that nothing was executed: the server did not know the script, was a
//! replica, or was not the one that has the slot. After anything else it may have been executed, and is not replayed: that
//! would charge twice.

mod backoff;
mod call;
mod cluster;
mod node;
mod open;
mod pool;
mod sentinels;
mod sharded;
mod slots;
pub(crate) mod tls;
pub(crate) mod topology;

use bb8_redis::redis::{Cmd, Value};

use crate::error::Error;
use cluster::Cluster;
use pool::{Pool, Source};
use topology::Topology;

pub(crate) use call::{Build, Text};
pub(crate) use open::Timeouts;
use sentinels::Sentinels;

pub(crate) enum Link {
    /// A server, or the master that Sentinels name.
    Pool(Pool),
    Cluster(Cluster),
}

/// A connection for one call.
pub(crate) enum Connection<'a> {
    Pooled(&'a Pool, pool::Checkout<'a>),
    Cluster(cluster::Handle<'a>),
}

impl Link {
    /// `prefix` is that of all keys.
    pub(crate) fn new(topology: Topology, prefix: &str, connections: u32, timeouts: Timeouts) -> Link {
        let source = match topology {
            Topology::Server(info) => Source::Server(info),
            Topology::Sentinel(sentinel) => Source::Sentinels(Sentinels::new(sentinel, timeouts)),
            Topology::Cluster(nodes) => return Link::Cluster(Cluster::new(nodes, timeouts)),
        };
        Link::Pool(Pool::new(source, prefix, connections, timeouts))
    }

    /// Whether keys live in slots that are decided apart.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self, Link::Cluster(_))
    }

    /// A connection for a call on keys of a slot; an error at once where connecting has just failed.
    pub(crate) async fn connection(&self, slot: u16) -> Result<Connection<'_>, Error> {
        match self {
            Link::Pool(pool) => Ok(Connection::Pooled(pool, pool.checkout().await?)),
            Link::Cluster(cluster) => Ok(Connection::Cluster(cluster.handle(slot).await?)),
        }
    }

    /// [`Link::connection`] and [`Connection::run`].
    pub(crate) async fn call(&self, slot: u16, build: Build<'_>) -> Result<Value, Error> {
        self.connection(slot).await?.run(slot, build, true).await
    }

    /// Whether the server is what the URL says it is.
    ///
    /// # Errors
    /// For a node of a cluster, or a Sentinel, that is addressed as a server of its own. That it cannot be asked is none.
    pub(crate) async fn check_mode(&self) -> Result<(), Error> {
        let Link::Pool(_) = self else { return Ok(()) };
        let build = |_: Text| {
            let mut cmd = Cmd::new();
            cmd.arg("INFO").arg("server");
            Some(cmd)
        };
        let text = match self.call(0, &build).await {
            Ok(Value::BulkString(text)) => String::from_utf8_lossy(&text).into_owned(),
            Ok(Value::VerbatimString { text, .. }) => text,
            _ => return Ok(()),
        };
        // Valkey calls it server_mode.
        if text.contains("_mode:cluster") {
            return Err(Error::config("this is a node of a cluster: its URL begins with redis-cluster://"));
        }
        if text.contains("_mode:sentinel") {
            return Err(Error::config("this is a Sentinel: its URL is redis-sentinel://host:26379/master"));
        }
        Ok(())
    }
}

impl Connection<'_> {
    /// Runs a command on keys of one slot. While that moves, some of them may be on one node and some on another: one that can
    /// be taken apart is refused at once then, and one that stands alone is repeated for a while.
    pub(crate) async fn run(self, slot: u16, build: Build<'_>, alone: bool) -> Result<Value, Error> {
        match self {
            Connection::Pooled(pool, checkout) => pool.run(checkout, build).await,
            Connection::Cluster(handle) => handle.run(slot, build, alone).await,
        }
    }
}
