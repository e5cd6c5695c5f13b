//! A cluster.

mod view;

use super::kind::Kind;
use super::server::{self, Server};
use super::{Error, patiently};

use view::{Node, Role};

/// Of a shorter timeout (in milliseconds) nodes of a busy machine are taken for dead; for a longer one tests of failovers
/// wait.
const ARGUMENTS: [&str; 6] =
    ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1"];
const SLOTS: u16 = 16_384;
const MASTERS: u16 = 3;

/// Six nodes: three masters, which share the slots evenly, and a replica of each.
///
/// A node that is killed is given up by the others after two seconds, and its replica takes over a second or two later.
#[derive(Debug)]
pub struct Cluster {
    /// The masters of the beginning, then their replicas in the same order.
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster and waits until all nodes agree on it and all replicas are in step with their masters.
    ///
    /// # Errors
    /// If there is no such server, with the ways to get it; or if the nodes do not come up or do not come together.
    pub fn start(kind: Kind) -> Result<Cluster, Error> {
        let nodes = server::start_all(kind, &[&ARGUMENTS[..]; 2 * MASTERS as usize])?;
        let cluster = Cluster { nodes };
        cluster.share_slots()?;
        patiently("all nodes know each other", || cluster.introduce())?;
        let (masters, replicas) = cluster.nodes.split_at(MASTERS.into());
        for (master, replica) in masters.iter().zip(replicas) {
            let master = id(master)?;
            // A replica learns of its master's slots later than of the master.
            patiently("a replica follows its master", || {
                replica.command(&["CLUSTER", "REPLICATE", &master])
            })?;
        }
        patiently("the cluster is complete", || cluster.is_complete())?;
        Ok(cluster)
    }

    /// All nodes: the masters of the beginning, in the order of their slots, then a replica of each, in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The URLs of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The masters of now, as the first node that runs sees it.
    ///
    /// # Errors
    /// If no node answers.
    pub fn masters(&self) -> Result<Vec<&Server>, Error> {
        Ok(self
            .view()?
            .iter()
            .filter(|node| node.role == Role::Master)
            .map(|node| self.server(node))
            .collect())
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// If no node answers.
    pub fn slot_of(&self, key: &str) -> Result<u16, Error> {
        let slot = self.anybody()?.command(&["CLUSTER", "KEYSLOT", key])?;
        slot.parse().map_err(|_| Error(format!("{slot} is no slot")))
    }

    /// The master that serves that slot, as the first node that runs sees it.
    ///
    /// # Errors
    /// If no node answers, or if nobody serves the slot: its master may have failed, and no replica taken over yet.
    pub fn owner_of(&self, slot: u16) -> Result<&Server, Error> {
        let view = self.view()?;
        let owner = view.iter().find(|node| node.role == Role::Master && node.serves(slot));
        owner.map(|node| self.server(node)).ok_or_else(|| Error(format!("nobody serves slot {slot}")))
    }

    /// Begins to move a slot to another master: until [`Cluster::finish_migration`], its owner answers `ASK` for keys that
    /// it does not have.
    ///
    /// # Errors
    /// If a node does not answer, or refuses: the slot is its own, or it is no master.
    pub fn begin_migration(&self, slot: u16, to: &Server) -> Result<(), Error> {
        let from = self.owner_of(slot)?;
        let slot = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)?])?;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)?]).map(drop)
    }

    /// Moves the keys of a slot, and then the slot itself, to the master that it was to be moved to. From then on every
    /// other master answers `MOVED` for it.
    ///
    /// # Errors
    /// If a node does not answer, or refuses.
    pub fn finish_migration(&self, slot: u16, to: &Server) -> Result<(), Error> {
        let from = self.owner_of(slot)?;
        let (slot, port, new) = (slot.to_string(), to.port().to_string(), id(to)?);
        loop {
            // Keys may hold anything, line feeds too.
            let keys = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])?;
            if keys.is_empty() {
                break;
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].map(str::as_bytes);
            let migrate: Vec<&[u8]> = migrate.into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
            from.ask(&migrate)?;
        }
        // First whom it belongs to: the one who gives it away would not know where to send the next caller.
        let others = self.masters()?.into_iter().filter(|master| master.port() != to.port());
        for master in [to].into_iter().chain(others) {
            master.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &new])?;
        }
        Ok(())
    }

    /// Gives each master its slots, and each node an epoch of its own: otherwise they would come to one by colliding.
    fn share_slots(&self) -> Result<(), Error> {
        for (node, epoch) in self.nodes.iter().zip(1_u16..) {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()])?;
        }
        for (master, n) in self.nodes.iter().zip(0..MASTERS) {
            let first = |n: u16| u32::from(n) * u32::from(SLOTS) / u32::from(MASTERS);
            // Version 6.2 does not know ranges.
            let slots: Vec<String> = (first(n)..first(n + 1)).map(|slot| slot.to_string()).collect();
            let words: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            master.command(&words)?;
        }
        Ok(())
    }

    /// Has each node meet those that it does not know; fails if there were any. A meeting that takes longer than the node
    /// timeout comes to nothing, and nobody repeats it.
    fn introduce(&self) -> Result<(), Error> {
        let mut strangers = 0;
        for node in &self.nodes {
            let known = view::of(node)?;
            for other in
                self.nodes.iter().filter(|other| known.iter().all(|known| known.port != other.port()))
            {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()])?;
                strangers += 1;
            }
        }
        if strangers == 0 { Ok(()) } else { Err(Error(format!("{strangers} meetings are wanting"))) }
    }

    fn is_complete(&self) -> Result<(), Error> {
        for node in &self.nodes {
            let info = node.command(&["CLUSTER", "INFO"])?;
            let (masters, replicas): (Vec<_>, Vec<_>) =
                view::of(node)?.into_iter().partition(|node| node.role == Role::Master);
            let slots: usize = masters.iter().map(Node::slots).sum();
            let is_complete = info.contains("cluster_state:ok")
                && (masters.len(), replicas.len()) == (MASTERS.into(), MASTERS.into())
                && slots == SLOTS.into();
            if !is_complete {
                return Err(Error(format!(
                    "of {} this is known: {info}{masters:?} {replicas:?}",
                    node.address()
                )));
            }
        }
        self.nodes[MASTERS.into()..].iter().try_for_each(server::follows)
    }

    fn view(&self) -> Result<Vec<Node>, Error> {
        view::of(self.anybody()?)
    }

    fn anybody(&self) -> Result<&Server, Error> {
        let running = self.nodes.iter().find(|node| node.is_running());
        running.ok_or_else(|| Error::new("no node of the cluster runs"))
    }

    fn server(&self, node: &Node) -> &Server {
        let server = self.nodes.iter().find(|server| server.port() == node.port);
        server.expect("nodes meet nobody but each other")
    }
}

/// The name by which nodes know each other.
fn id(node: &Server) -> Result<String, Error> {
    node.command(&["CLUSTER", "MYID"])
}
