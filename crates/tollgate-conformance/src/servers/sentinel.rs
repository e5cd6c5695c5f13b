//! A master under sentinels.

use super::kind::Kind;
use super::server::{self, Server};
use super::{Error, patiently};

const NAME: &str = "tollgate";
const QUORUM: &str = "2";
/// How long a master is silent before a sentinel gives it up, and how long a failover may take before another is begun.
const TIMES: [&str; 4] = ["down-after-milliseconds", "1000", "failover-timeout", "3000"];

/// A master, a replica, and three sentinels that agree by two.
///
/// A master that is killed is given up after a second; the replica takes over a second or two later.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinel {
    /// Starts all of them and waits until the sentinels know the replica and each other.
    ///
    /// # Errors
    /// If there is no such server, with the ways to get it; or if one does not come up, or they do not find each other.
    pub fn start(kind: Kind) -> Result<Sentinel, Error> {
        let arguments: [&[&str]; 5] = [&[], &[], &["--sentinel"], &["--sentinel"], &["--sentinel"]];
        let mut servers = server::start_all(kind, &arguments)?;
        let sentinels = servers.split_off(2);
        let port = servers[0].port().to_string();
        servers[1].command(&["REPLICAOF", "127.0.0.1", &port])?;
        // First: sentinels ask for replicas when they begin, and ten seconds later.
        patiently("the replica follows its master", || server::follows(&servers[1]))?;
        for sentinel in &sentinels {
            sentinel.command(&["SENTINEL", "MONITOR", NAME, "127.0.0.1", &port, QUORUM])?;
            for setting in TIMES.chunks(2) {
                sentinel.command(&["SENTINEL", "SET", NAME, setting[0], setting[1]])?;
            }
        }
        let all = Sentinel { servers, sentinels };
        patiently("the sentinels know the replica and each other", || all.is_complete())?;
        Ok(all)
    }

    /// The name under which the sentinels know the master.
    #[must_use]
    pub fn master_name(&self) -> &str {
        NAME
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The URLs of the sentinels.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// The servers: the master of the beginning and its replica.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The master of now, as the first sentinel that runs sees it.
    ///
    /// # Errors
    /// If no sentinel answers.
    pub fn master(&self) -> Result<&Server, Error> {
        let running = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        self.master_by(running.ok_or_else(|| Error::new("no sentinel runs"))?)
    }

    /// Waits until all sentinels that run name another master than the `old` one, and it is one; returns it.
    ///
    /// # Errors
    /// If none takes over within a minute.
    pub fn next_master(&self, old: &Server) -> Result<&Server, Error> {
        patiently("another server is master", || {
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
                if self.master_by(sentinel)?.port() == old.port() {
                    return Err(Error(format!("{} still names the old one", sentinel.address())));
                }
            }
            let new = self.master()?;
            let role = new.command(&["ROLE"])?;
            if role.starts_with("master") {
                Ok(new)
            } else {
                Err(Error(format!("{} is: {role}", new.address())))
            }
        })
    }

    /// Has the sentinels make the replica the master, though nobody failed; waits until it is, and returns it. The old
    /// master goes on as one until the sentinels find that out, some ten seconds later.
    ///
    /// # Errors
    /// If it does not come about: the replica may be down.
    pub fn failover(&self) -> Result<&Server, Error> {
        let old = self.master()?;
        // Refused for as long as another failover goes on, or the replica is not known to be in step.
        patiently("a sentinel begins a failover", || {
            self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME])
        })?;
        self.next_master(old)
    }

    fn master_by(&self, sentinel: &Server) -> Result<&Server, Error> {
        let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        let port = address.lines().nth(1).and_then(|port| port.parse().ok());
        let master = self.servers.iter().find(|server| Some(server.port()) == port);
        master.ok_or_else(|| {
            Error(format!("{} names a master that is none of these: {address}", sentinel.address()))
        })
    }

    fn is_complete(&self) -> Result<(), Error> {
        for sentinel in &self.sentinels {
            sentinel.command(&["SENTINEL", "CKQUORUM", NAME])?;
            let known = sentinel.command(&["SENTINEL", "MASTER", NAME])?;
            if !["num-slaves\n1\n", "num-other-sentinels\n2\n"].iter().all(|part| known.contains(part)) {
                return Err(Error(format!("{} knows only:\n{known}", sentinel.address())));
            }
        }
        Ok(())
    }
}
