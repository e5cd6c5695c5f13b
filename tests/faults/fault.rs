//! What befalls a server, a master under Sentinels, or a Cluster: how each fault is brought about, and how it ends.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use tokio::task::block_in_place;
use tollgate::ErrorKind;
use tollgate_conformance::servers::{Cluster, Kind, Sentinel, Server};
use tollgate_tests::{Proxy, Way};

/// The user who uses up a quota.
pub(crate) const ADA: &str = "ada";

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Killed,
    Stopped,
    ClientsPaused,
    ScriptsFlushed,
    MemoryFull,
    MemoryFullAndEvicting,
    PasswordSet,
    MadeReplica,
    /// On the way to a server.
    Behind(Way),
    /// Connections that there are pass nothing any more.
    Stranded,
    MasterLost,
    SlotMoves,
    ClusterMasterLost,
    ClusterMasterLostForGood,
}

/// What a fault does to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The store decides as always.
    None,
    /// Each that the store is asked for fails in this way or that, once the fault is there.
    Every(&'static [ErrorKind]),
    /// Some do: the store decides the others.
    Some(&'static [ErrorKind]),
}

impl Fault {
    pub(crate) const EVERY: [Fault; 18] = [
        Fault::Killed,
        Fault::Stopped,
        Fault::ClientsPaused,
        Fault::ScriptsFlushed,
        Fault::MemoryFull,
        Fault::MemoryFullAndEvicting,
        Fault::PasswordSet,
        Fault::MadeReplica,
        Fault::Behind(Way::IsClosed),
        Fault::Behind(Way::IsSilent),
        Fault::Behind(Way::HoldsAnswersBack),
        Fault::Behind(Way::IsSlow(LATE)),
        Fault::Behind(Way::LosesAnswersOfScripts),
        Fault::Stranded,
        Fault::MasterLost,
        Fault::SlotMoves,
        Fault::ClusterMasterLost,
        Fault::ClusterMasterLostForGood,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Killed => "kill -9, restart",
            Fault::Stopped => "SIGSTOP, SIGCONT",
            Fault::ClientsPaused => "CLIENT PAUSE",
            Fault::ScriptsFlushed => "SCRIPT FLUSH, again and again",
            Fault::MemoryFull => "maxmemory reached, noeviction",
            Fault::MemoryFullAndEvicting => "maxmemory reached, allkeys-lru",
            Fault::PasswordSet => "CONFIG SET requirepass, clients killed",
            Fault::MadeReplica => "made a replica (READONLY)",
            Fault::Behind(Way::IsClosed) => "connections cut, and closed at once",
            Fault::Behind(Way::IsSilent) => "accepts, never answers",
            Fault::Behind(Way::HoldsAnswersBack) => "asked, answers stall",
            Fault::Behind(Way::IsSlow(_)) => "answers late",
            Fault::Behind(Way::LosesAnswersOfScripts) => "reply lost after the charge",
            Fault::Behind(_) => "on the way",
            Fault::Stranded => "open connections pass nothing",
            Fault::MasterLost => "Sentinel: master killed",
            Fault::SlotMoves => "Cluster: slot migrates",
            Fault::ClusterMasterLost => "Cluster: master killed",
            Fault::ClusterMasterLostForGood => "Cluster: master and replica killed",
        }
    }

    pub(crate) fn effect(self) -> Effect {
        use ErrorKind::{Misconfigured, Timeout, Unavailable};
        match self {
            Fault::ScriptsFlushed | Fault::MemoryFullAndEvicting | Fault::SlotMoves => Effect::None,
            // Those on their way when clients are killed, and whoever connects to a server that does not answer yet.
            Fault::PasswordSet => Effect::Every(&[Misconfigured, Unavailable, Timeout]),
            // Denials write nothing, and are decided.
            Fault::MemoryFull | Fault::MadeReplica => Effect::Some(&[Timeout, Unavailable]),
            Fault::Stranded | Fault::ClusterMasterLost | Fault::ClusterMasterLostForGood => {
                Effect::Some(&[Timeout, Unavailable])
            }
            _ => Effect::Every(&[Timeout, Unavailable]),
        }
    }

    /// How long the store is waited for. Where no request may fail, none may be late for want of a processor.
    pub(crate) fn timeout(self) -> Duration {
        match self.effect() {
            Effect::None => Duration::from_secs(10),
            _ => Duration::from_millis(50),
        }
    }

    /// Whether what was charged may be forgotten: a limiter over it cannot know better.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Fault::MemoryFullAndEvicting | Fault::ClusterMasterLostForGood)
    }

    /// Long enough for breakers to open, and for probes to fail.
    pub(crate) fn lasts(self) -> Duration {
        match self {
            // It ends by itself, some ten milliseconds later.
            Fault::ClientsPaused => PAUSE,
            _ => Duration::from_millis(1_200),
        }
    }
}

const LATE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(1_200);

/// Something that can fail, in order.
pub(crate) struct Scene {
    fault: Fault,
    place: Place,
    /// Where a store finds it.
    pub(crate) url: String,
}

enum Place {
    Server(Server),
    /// The server is not asked, and has to stay.
    Behind {
        proxy: Proxy,
        _server: Server,
    },
    Sentinel(Sentinel),
    Cluster(Cluster),
}

impl Scene {
    pub(crate) async fn of(fault: Fault) -> Scene {
        // What is charged survives a restart.
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

    /// Brings the fault about.
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

    /// What has to be done over and over while the fault lasts.
    pub(crate) fn goes_on(&self) {
        if let (Fault::ScriptsFlushed, Place::Server(server)) = (self.fault, &self.place) {
            block_in_place(|| command(server, &["SCRIPT", "FLUSH"]));
        }
    }

    /// Ends it, or waits for its end.
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
                    // The master first: its replica has nothing to take over with.
                    for node in cluster.nodes().iter().filter(|node| node.pid().is_none()) {
                        node.restart().expect("a restart");
                    }
                    patiently("the slot is served", || is_served(cluster));
                }
                _ => patiently("a replica takes over", || is_served(cluster)),
            }),
        }
    }

    /// Whether the fault was what it is called.
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

fn begin_on(fault: Fault, server: &Server) {
    match fault {
        Fault::Killed => server.kill(),
        Fault::Stopped => server.pause().expect("a signal"),
        Fault::ClientsPaused => {
            command(server, &["CLIENT", "PAUSE", &PAUSE.as_millis().to_string()]);
        }
        // A byte: it is reached.
        Fault::MemoryFull => {
            command(server, &["CONFIG", "SET", "maxmemory", "1"]);
        }
        Fault::MemoryFullAndEvicting => {
            // In parts, each for a moment only.
            for n in 0..100 {
                let fill = "for n = 1, 100 do redis.call('SET', ARGV[1] .. '-' .. n, 'something else') end";
                command(server, &["EVAL", fill, "0", &n.to_string()]);
            }
            command(server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
            let info = command(server, &["INFO", "memory"]);
            let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a number");
            command(server, &["CONFIG", "SET", "maxmemory", used]);
        }
        Fault::PasswordSet => {
            command(server, &["ACL", "SETUSER", "admin", "on", "nopass", "~*", "+@all"]);
            command(server, &["CONFIG", "SET", "requirepass", "secret"]);
            by_admin(server, "CLIENT KILL TYPE normal SKIPME yes");
        }
        Fault::MadeReplica => {
            // Of nobody, so that it keeps what it has.
            command(server, &["REPLICAOF", "127.0.0.1", "1"]);
        }
        _ => {}
    }
}

fn end_on(fault: Fault, server: &Server) {
    match fault {
        Fault::Killed => server.restart().expect("a restart"),
        Fault::Stopped => server.resume().expect("a signal"),
        // Whoever asks is paused as well.
        Fault::ClientsPaused => drop(command(server, &["PING"])),
        Fault::MemoryFull => drop(command(server, &["CONFIG", "SET", "maxmemory", "0"])),
        Fault::PasswordSet => by_admin(server, "CONFIG SET requirepass \"\""),
        Fault::MadeReplica => drop(command(server, &["REPLICAOF", "NO", "ONE"])),
        _ => {}
    }
}

fn command(server: &Server, words: &[&str]) -> String {
    server.command(words).expect("an answer")
}

/// By a user who needs no password, when the others do.
fn by_admin(server: &Server, line: &str) {
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.write_all(format!("AUTH admin any\r\n{line}\r\n").as_bytes()).expect("it is sent");
    let answers = BufReader::new(stream).lines().take(2).map(|line| line.expect("a line"));
    assert!(answers.into_iter().all(|answer| !answer.starts_with('-')), "{line} is refused");
}

/// Replication is late by nature: nothing is charged any more when the replica has all of it, and then the master dies.
fn kill_in_step(master: &Server, replica: &Server) {
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

/// The braces are the tag by which keys are put into slots.
fn slot_of_ada(cluster: &Cluster) -> u16 {
    cluster.slot_of(&format!("{{={ADA}}}")).expect("a slot")
}

/// The master that gets ada's slot: the one after her first, whether it has it already or not.
fn destination(cluster: &Cluster) -> &Server {
    let first = usize::from(slot_of_ada(cluster)) * 3 / 16_384;
    &cluster.nodes()[(first + 1) % 3]
}

fn replica_of<'a>(cluster: &'a Cluster, master: &Server) -> &'a Server {
    let nodes = cluster.nodes();
    let at = nodes.iter().position(|node| node.port() == master.port()).expect("a node");
    &nodes[at + nodes.len() / 2]
}

/// Whether a node that runs has ada's slot, and says that all is well. Until they give it up, the others name one that was
/// killed.
fn is_served(cluster: &Cluster) -> bool {
    let Ok(owner) = cluster.owner_of(slot_of_ada(cluster)) else { return false };
    owner.pid().is_some()
        && owner.command(&["CLUSTER", "INFO"]).is_ok_and(|info| info.contains("cluster_state:ok"))
}

fn patiently(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not in a minute: {what}");
}
