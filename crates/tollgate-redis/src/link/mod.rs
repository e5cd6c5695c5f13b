//! Connections to Redis, and which calls may be sent again.
//!
//! A call is sent again only if it is certain that nothing was executed: the server did not know
//! the script, is a replica, or does not own the hash slot. Any other failed call may have been
//! executed, and sending it again could charge twice.
//!
//! From top to bottom, each module imports only those below it: this one, `pool` and `cluster`,
//! `sentinels`, `proxy_check`, `hash_slots`, `node`, `open`, `credentials`, `call`, `backoff`,
//! `topology`, `tls`.

mod backoff;
mod call;
mod cluster;
mod credentials;
mod hash_slots;
mod node;
mod open;
mod pool;
mod proxy_check;
mod sentinels;
pub(crate) mod tls;
pub(crate) mod topology;

use std::sync::Arc;

use bb8_redis::redis::{Value, cmd};

use crate::error::{Cause, Error};
use cluster::ClusterLink;
use node::ClusterNode;
pub(crate) use pool::QUESTIONS;
use pool::{Pool, ServerSource};
use topology::Topology;

pub(crate) use call::{Build, Moving, Text, Timeouts, plain};
pub use credentials::Credentials;
pub(crate) use credentials::CredentialsSource;
pub(crate) use open::Connecting;
use sentinels::Sentinels;

pub(crate) enum Link {
    /// A server, or the master that Sentinels name.
    Pool(Pool),
    Cluster(ClusterLink),
}

/// A server that holds keys.
#[derive(Clone)]
pub(crate) enum Master {
    /// The server of the pool.
    Pooled,
    /// A master of a Cluster.
    Node(Arc<ClusterNode>),
}

/// A connection for one call.
pub(crate) enum CallConnection<'a> {
    Pooled(&'a Pool, pool::Checkout<'a>),
    Cluster(cluster::Handle<'a>),
}

impl Link {
    /// `prefix` is that of all keys.
    pub(crate) fn new(topology: Topology, prefix: &str, connections: u32, connecting: Connecting) -> Link {
        let source = match topology {
            Topology::Server(info) => ServerSource::Server(info),
            Topology::Sentinel(sentinel) => {
                ServerSource::Sentinels(Sentinels::new(sentinel, connecting.clone()))
            }
            Topology::Cluster(cluster) => {
                return Link::Cluster(ClusterLink::new(cluster, prefix, connecting));
            }
        };
        Link::Pool(Pool::new(source, prefix, connections, connecting))
    }

    /// Whether keys are divided into hash slots, each with its own calls.
    pub(crate) fn has_hash_slots(&self) -> bool {
        matches!(self, Link::Cluster(_))
    }

    /// The number of the node that owns a hash slot, 0 if it is unknown or the only one.
    pub(crate) fn node(&self, hash_slot: u16) -> u64 {
        match self {
            Link::Pool(_) => 0,
            Link::Cluster(cluster) => cluster.number_of_owner(hash_slot),
        }
    }

    /// A connection for a call on keys of a hash slot. Fails at once if connecting has just failed.
    pub(crate) async fn connection(&self, hash_slot: u16) -> Result<CallConnection<'_>, Error> {
        let connection = match self {
            Link::Pool(pool) => pool.checkout().await.map(|checkout| CallConnection::Pooled(pool, checkout)),
            Link::Cluster(cluster) => cluster.handle(hash_slot).await.map(CallConnection::Cluster),
        };
        connection.map_err(Error::unsent)
    }

    /// [`Link::connection`] and [`CallConnection::run`].
    pub(crate) async fn call(&self, hash_slot: u16, build: Build<'_>) -> Result<Value, Error> {
        self.connection(hash_slot).await?.run(hash_slot, build, Some(&|| {})).await
    }

    /// All servers that hold keys.
    pub(crate) async fn masters(&self) -> Result<Vec<Master>, Error> {
        match self {
            Link::Pool(_) => Ok(vec![Master::Pooled]),
            Link::Cluster(cluster) => Ok(cluster.masters().await?.into_iter().map(Master::Node).collect()),
        }
    }

    /// The server that holds the keys of a hash slot, as a node knows it now.
    pub(crate) async fn master_of(&self, hash_slot: u16) -> Result<Master, Error> {
        match self {
            Link::Pool(_) => Ok(Master::Pooled),
            Link::Cluster(cluster) => cluster.master_of(hash_slot).await.map(Master::Node),
        }
    }

    /// Runs a command that names no key on one of [`Link::masters`].
    pub(crate) async fn call_on(&self, master: &Master, build: Build<'_>) -> Result<Value, Error> {
        match master {
            Master::Pooled => self.call(0, build).await,
            Master::Node(node) => {
                let cmd = build(Text::Hash).ok_or(Cause::Late)?;
                Ok(node.connection().await?.run_without_key(cmd).await.map_err(Cause::Redis)?)
            }
        }
    }

    /// A section of `INFO`. `None` if the server does not say.
    pub(crate) async fn info(&self, master: &Master, section: &str) -> Option<String> {
        match self.call_on(master, &plain(cmd("INFO").arg(section))).await.ok()? {
            Value::BulkString(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            Value::VerbatimString { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Checks that the server is what the URL says.
    ///
    /// # Errors
    /// If the URL of a server leads to a node of a Cluster or to a Sentinel, or a node of a Cluster
    /// cannot be reached at the address that it announces. If the server cannot be asked, that is
    /// not an error.
    pub(crate) async fn check_mode(&self) -> Result<(), Error> {
        if let Link::Cluster(cluster) = self {
            return cluster.check_addresses().await;
        }
        let text = self.info(&Master::Pooled, "server").await.unwrap_or_default();
        // Valkey calls it server_mode.
        if text.contains("_mode:cluster") {
            return Err(Error::config("the server is a node of a cluster: use a redis-cluster:// URL"));
        }
        if text.contains("_mode:sentinel") {
            return Err(Error::config(
                "the server is a Sentinel: use a URL like redis-sentinel://host:26379/master",
            ));
        }
        Ok(())
    }
}

impl CallConnection<'_> {
    /// Runs a command on keys of one hash slot. `moving` says what to do while the hash slot moves.
    pub(crate) async fn run(
        self,
        hash_slot: u16,
        build: Build<'_>,
        moving: Moving<'_>,
    ) -> Result<Value, Error> {
        match self {
            CallConnection::Pooled(pool, checkout) => pool.run(checkout, build).await,
            CallConnection::Cluster(handle) => handle.run(hash_slot, build, moving).await,
        }
    }
}
