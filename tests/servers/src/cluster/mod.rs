//! A Redis or Valkey cluster.

mod view;

use super::kind::Kind;
use super::server::{self, Server};
use super::{Error, retry};

use view::{Node, Role};

/// The node timeout in milliseconds. With a shorter one, slow nodes of a busy machine count as
/// failed. A longer one slows down the tests of failovers.
const ARGUMENTS: [&str; 6] =
    ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1"];
const SLOTS: u16 = 16_384;
const MASTERS: u16 = 3;

/// Six nodes: three masters with equal shares of the slots, and a replica of each.
///
/// A killed node counts as failed after two seconds. Its replica takes over a second or two later.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster. Waits until all nodes agree on it and all replicas are in sync.
    ///
    /// # Errors
    /// If there is no such server, with the ways to get it. If the nodes do not start or agree.
    pub fn start(kind: Kind) -> Result<Cluster, Error> {
        Cluster::start_with(kind, &[])
    }

    /// Starts a cluster whose nodes have more arguments, as in [`Server::start_with`].
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with(kind: Kind, arguments: &[&str]) -> Result<Cluster, Error> {
        Cluster::start_once(kind, arguments).or_else(|error| {
            // On a busy machine a node took a replica for a master until the test gave up.
            eprintln!("another cluster is started: {error}");
            Cluster::start_once(kind, arguments)
        })
    }

    fn start_once(kind: Kind, arguments: &[&str]) -> Result<Cluster, Error> {
        let arguments = [&ARGUMENTS[..], arguments].concat();
        let nodes = server::start_all(kind, &[&arguments[..]; 2 * MASTERS as usize])?;
        let cluster = Cluster { nodes };
        // On a busy machine a replica might take over before it is where it belongs.
        cluster.let_replicas_take_over(false)?;
        cluster.share_slots()?;
        retry("all nodes know each other", || cluster.introduce())?;
        let (masters, replicas) = cluster.nodes.split_at(MASTERS.into());
        let pairs = || masters.iter().zip(replicas);
        for (master, replica) in pairs() {
            // A replica learns its master's slots after it learns of the master.
            retry("a replica follows its master", || follow(replica, master))?;
        }
        retry("the cluster is complete", || {
            // On a busy machine a replica may become a master again.
            pairs().try_for_each(|(master, replica)| follow(replica, master))?;
            cluster.is_complete()
        })?;
        cluster.let_replicas_take_over(true)?;
        Ok(cluster)
    }

    /// All nodes: the initial masters in slot order, then their replicas in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The URLs of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The current masters, as the first running node sees them.
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
        slot.parse().map_err(|_| Error(format!("{slot} is not a slot")))
    }

    /// The master that serves a slot, as the first running node sees it.
    ///
    /// # Errors
    /// If no node answers. If no master serves the slot, because a failover is not complete.
    pub fn owner_of(&self, slot: u16) -> Result<&Server, Error> {
        let view = self.view()?;
        let owner = view.iter().find(|node| node.role == Role::Master && node.serves(slot));
        owner.map(|node| self.server(node)).ok_or_else(|| Error(format!("no master serves slot {slot}")))
    }

    /// Starts to move a slot to another master. Until [`Cluster::finish_migration`], the owner
    /// answers `ASK` for keys that it does not have.
    ///
    /// # Errors
    /// If a node does not answer, or refuses: `to` owns the slot already, or is no master.
    pub fn begin_migration(&self, slot: u16, to: &Server) -> Result<(), Error> {
        let from = self.owner_of(slot)?;
        let slot = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)?])?;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)?]).map(drop)
    }

    /// Moves the keys of a slot, and then the slot itself, to the master given to
    /// [`Cluster::begin_migration`]. Then all other masters answer `MOVED` for it.
    ///
    /// # Errors
    /// If a node does not answer, or refuses.
    pub fn finish_migration(&self, slot: u16, to: &Server) -> Result<(), Error> {
        let from = self.owner_of(slot)?;
        let (slot, port, new) = (slot.to_string(), to.port().to_string(), id(to)?);
        loop {
            // Read as bytes: keys may contain line feeds.
            let keys = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])?;
            if keys.is_empty() {
                break;
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].map(str::as_bytes);
            let migrate: Vec<&[u8]> = migrate.into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
            from.ask(&migrate)?;
        }
        // The new owner first: the old one could not redirect callers otherwise.
        let others = self.masters()?.into_iter().filter(|master| master.port() != to.port());
        for master in [to].into_iter().chain(others) {
            master.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &new])?;
        }
        Ok(())
    }

    /// Assigns slots to the masters and an epoch to each node, which avoids epoch collisions.
    fn share_slots(&self) -> Result<(), Error> {
        for (node, epoch) in self.nodes.iter().zip(1_u16..) {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()])?;
        }
        for (master, n) in self.nodes.iter().zip(0..MASTERS) {
            let first = |n: u16| u32::from(n) * u32::from(SLOTS) / u32::from(MASTERS);
            // Version 6.2 does not support ranges.
            let slots: Vec<String> = (first(n)..first(n + 1)).map(|slot| slot.to_string()).collect();
            let words: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            master.command(&words)?;
        }
        Ok(())
    }

    /// Introduces each node to those it does not know. Fails if there were any. A handshake that
    /// takes longer than the node timeout is dropped without a retry.
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
        if strangers == 0 {
            Ok(())
        } else {
            Err(Error(format!("{strangers} pairs of nodes do not know each other")))
        }
    }

    /// Whether replicas take over from masters that fail. By default they do, also after a restart.
    fn let_replicas_take_over(&self, may: bool) -> Result<(), Error> {
        let no_failover = if may { "no" } else { "yes" };
        let set = ["CONFIG", "SET", "cluster-replica-no-failover", no_failover];
        self.nodes.iter().try_for_each(|node| node.command(&set).map(drop))
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
        server.expect("nodes only know nodes of this cluster")
    }
}

/// Lets a node follow its master, unless it follows one.
fn follow(replica: &Server, master: &Server) -> Result<(), Error> {
    if !replica.command(&["ROLE"])?.starts_with("master") {
        return Ok(());
    }
    replica.command(&["CLUSTER", "REPLICATE", &id(master)?]).map(drop)
}

fn id(node: &Server) -> Result<String, Error> {
    node.command(&["CLUSTER", "MYID"])
}
