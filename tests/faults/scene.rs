//! Servers on which faults are started and ended.

use tokio::task::block_in_place;
use tollgate_test_servers::{Cluster, Kind, Sentinel, Server};
use tollgate_tests::{Proxy, Way};

use crate::faults::fault::Fault;
use crate::faults::server::{begin_on, command, end_on, patiently};

/// The user that uses up a quota.
pub(crate) const ADA: &str = "ada";

/// A healthy server, pair or Cluster that can fail.
pub(crate) struct Scene {
    fault: Fault,
    place: Place,
    /// The URL for stores.
    pub(crate) url: String,
}

enum Place {
    Server(Server),
    /// Only keeps the server alive.
    Behind {
        proxy: Proxy,
        _server: Server,
    },
    Sentinel(Sentinel),
    Cluster(Cluster),
}

impl Scene {
    pub(crate) async fn of(fault: Fault) -> Scene {
        // Charges survive a restart.
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let start = |kind| block_in_place(|| Server::start_with(kind, &durable)).expect("a server");
        let place = match fault {
            Fault::Behind(_) | Fault::Stranded => {
                let server = start(Kind::Valkey9_1);
                let proxy = Proxy::before(server.address()).await;
                Place::Behind { proxy, _server: server }
            }
            Fault::MasterLost => {
                Place::Sentinel(block_in_place(|| Sentinel::start(Kind::Redis8_2)).expect("sentinels"))
            }
            Fault::SlotMoves => {
                Place::Cluster(block_in_place(|| Cluster::start(Kind::Redis6_2)).expect("a cluster"))
            }
            Fault::ClusterMasterLost | Fault::ClusterMasterLostForGood => {
                Place::Cluster(block_in_place(|| Cluster::start(Kind::Redis8_2)).expect("a cluster"))
            }
            Fault::Stopped | Fault::ClientsPaused | Fault::MemoryFull => Place::Server(start(Kind::Redis6_2)),
            _ => Place::Server(start(Kind::Redis8_2)),
        };
        let list = |servers: &[Server]| {
            servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
        };
        let url = match &place {
            Place::Server(server) => server.url(),
            Place::Behind { proxy, .. } => format!("redis://{}/", proxy.address()),
            Place::Sentinel(sentinel) => {
                format!("redis-sentinel://{}/{}", list(sentinel.sentinels()), sentinel.master_name())
            }
            Place::Cluster(cluster) => format!("redis-cluster://{}", list(cluster.nodes())),
        };
        Scene { fault, place, url }
    }

    /// Starts the fault.
    pub(crate) async fn begin(&mut self) {
        let fault = self.fault;
        match &self.place {
            Place::Server(server) => block_in_place(|| begin_on(fault, server)),
            Place::Behind { proxy, .. } => match fault {
                Fault::Behind(way) => {
                    proxy.set(way);
                    if way == Way::IsClosed {
                        proxy.cut();
                    }
                }
                _ => proxy.strand(),
            },
            Place::Sentinel(sentinel) => block_in_place(|| {
                let master = sentinel.master().expect("a master");
                let replica = other(sentinel.servers(), master);
                kill_in_step(master, replica);
            }),
            Place::Cluster(cluster) => block_in_place(|| match fault {
                Fault::SlotMoves => {
                    let (slot, to) = (slot_of_ada(cluster), destination(cluster));
                    cluster.begin_migration(slot, to).expect("a migration");
                }
                _ => {
                    let master = cluster.owner_of(slot_of_ada(cluster)).expect("an owner");
                    let replica = replica_of(cluster, master);
                    if fault == Fault::ClusterMasterLostForGood {
                        for node in cluster.nodes() {
                            command(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
                        }
                        replica.kill();
                        master.kill();
                    } else {
                        kill_in_step(master, replica);
                    }
                }
            }),
        }
    }

    /// Repeats what a fault needs while it lasts.
    pub(crate) fn goes_on(&self) {
        if let (Fault::ScriptsFlushed, Place::Server(server)) = (self.fault, &self.place) {
            block_in_place(|| command(server, &["SCRIPT", "FLUSH"]));
        }
    }

    /// Ends the fault, or waits for its end.
    pub(crate) async fn end(&mut self) {
        let fault = self.fault;
        match &self.place {
            Place::Server(server) => block_in_place(|| end_on(fault, server)),
            Place::Behind { proxy, .. } => proxy.set(Way::IsOpen),
            Place::Sentinel(sentinel) => block_in_place(|| {
                let old = sentinel.servers().iter().find(|server| server.pid().is_none());
                sentinel.next_master(old.expect("one was killed")).expect("another master");
            }),
            Place::Cluster(cluster) => block_in_place(|| match fault {
                Fault::SlotMoves => {
                    let (slot, to) = (slot_of_ada(cluster), destination(cluster));
                    cluster.finish_migration(slot, to).expect("a migration");
                }
                Fault::ClusterMasterLostForGood => {
                    // The master first: a replica has no vote for itself.
                    for node in cluster.nodes().iter().filter(|node| node.pid().is_none()) {
                        node.restart().expect("a restart");
                    }
                    patiently("the slot is served", || is_served(cluster));
                }
                _ => patiently("a replica takes over", || is_served(cluster)),
            }),
        }
    }

    /// Whether the fault really happened.
    pub(crate) fn has_come_about(&self) -> bool {
        match (&self.place, self.fault) {
            (Place::Server(server), Fault::MemoryFullAndEvicting) => {
                !command(server, &["INFO", "stats"]).contains("evicted_keys:0\r")
            }
            (Place::Behind { proxy, .. }, Fault::Behind(Way::LosesAnswersOfScripts)) => proxy.lost() > 0,
            _ => true,
        }
    }
}

/// Replication is asynchronous. So writes stop, the replica catches up, and then the master is
/// killed.
pub(crate) fn kill_in_step(master: &Server, replica: &Server) {
    command(master, &["CLIENT", "PAUSE", "60000", "WRITE"]);
    let number = |server: &Server, name: &str| {
        let info = command(server, &["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned).expect("a number")
    };
    patiently("the replica is in step", || {
        number(master, "master_repl_offset:") == number(replica, "slave_repl_offset:")
    });
    master.kill();
}

fn other<'a>(servers: &'a [Server], than: &Server) -> &'a Server {
    servers.iter().find(|server| server.port() != than.port()).expect("another")
}

/// The braces are the hash tag that puts keys into slots.
fn slot_of_ada(cluster: &Cluster) -> u16 {
    cluster.slot_of(&format!("{{={ADA}}}")).expect("a slot")
}

/// The master that gets ada's slot: the one after the slot's first master, even if it has the slot
/// already.
fn destination(cluster: &Cluster) -> &Server {
    let first = usize::from(slot_of_ada(cluster)) * 3 / 16_384;
    &cluster.nodes()[(first + 1) % 3]
}

fn replica_of<'a>(cluster: &'a Cluster, master: &Server) -> &'a Server {
    let nodes = cluster.nodes();
    let at = nodes.iter().position(|node| node.port() == master.port()).expect("a node");
    &nodes[at + nodes.len() / 2]
}

/// Whether a running node has ada's slot and reports a healthy Cluster. Until a failover is over,
/// nodes name the killed master.
fn is_served(cluster: &Cluster) -> bool {
    let Ok(owner) = cluster.owner_of(slot_of_ada(cluster)) else { return false };
    owner.pid().is_some()
        && owner.command(&["CLUSTER", "INFO"]).is_ok_and(|info| info.contains("cluster_state:ok"))
}
