//! A master, its replica and their sentinels.

use super::kind::Kind;
use super::server::{self, Server};
use super::{Error, retry};

const NAME: &str = "tollgate";
const QUORUM: &str = "2";
/// How long a master must be silent to count as failed, and how long a failover may take.
const TIMES: [&str; 4] = ["down-after-milliseconds", "1000", "failover-timeout", "3000"];
/// How often sentinels tell each other of themselves, in milliseconds. By default they do every two
/// seconds, which would be most of the start.
const INTRODUCTIONS: [&str; 4] = ["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "100"];

/// A master, a replica, and three sentinels with a quorum of two.
///
/// A killed master counts as failed after a second. The replica takes over a second or two later.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinel {
    /// Starts all servers. Waits until the sentinels know the replica and each other.
    ///
    /// # Errors
    /// If there is no such server, with the ways to get it. If one does not start or find the
    /// others.
    pub fn start(kind: Kind) -> Result<Sentinel, Error> {
        let arguments: [&[&str]; 5] = [&[], &[], &["--sentinel"], &["--sentinel"], &["--sentinel"]];
        let mut servers = server::start_all(kind, &arguments)?;
        let sentinels = servers.split_off(2);
        let port = servers[0].port().to_string();
        servers[1].command(&["REPLICAOF", "127.0.0.1", &port])?;
        // Before the sentinels: they look for replicas at the start and then every ten seconds.
        retry("the replica follows its master", || server::follows(&servers[1]))?;
        for sentinel in &sentinels {
            // Version 6.2 does not have it.
            let _ = sentinel.command(&INTRODUCTIONS);
            sentinel.command(&["SENTINEL", "MONITOR", NAME, "127.0.0.1", &port, QUORUM])?;
            for setting in TIMES.chunks(2) {
                sentinel.command(&["SENTINEL", "SET", NAME, setting[0], setting[1]])?;
            }
        }
        let all = Sentinel { servers, sentinels };
        retry("the sentinels know the replica and each other", || all.is_complete())?;
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

    /// The initial master and its replica.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The current master, as the first running sentinel sees it.
    ///
    /// # Errors
    /// If no sentinel answers.
    pub fn master(&self) -> Result<&Server, Error> {
        let running = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        self.master_by(running.ok_or_else(|| Error::new("no sentinel runs"))?)
    }

    /// Waits until all running sentinels name a new master that has taken over, and returns it.
    ///
    /// # Errors
    /// If none takes over within a minute.
    pub fn next_master(&self, old: &Server) -> Result<&Server, Error> {
        retry("another server is master", || {
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
                Err(Error(format!("{} has the role {role}", new.address())))
            }
        })
    }

    /// Starts a failover without a failure, waits until the replica is the master, and returns it.
    /// The old one remains a master until the sentinels notice, about ten seconds later.
    ///
    /// # Errors
    /// If there is no failover, for example because the replica is down.
    pub fn failover(&self) -> Result<&Server, Error> {
        let old = self.master()?;
        // Refused while another failover runs or the replica is not known to be in sync.
        retry("a sentinel begins a failover", || self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME]))?;
        self.next_master(old)
    }

    fn master_by(&self, sentinel: &Server) -> Result<&Server, Error> {
        let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        let port = address.lines().nth(1).and_then(|port| port.parse().ok());
        let master = self.servers.iter().find(|server| Some(server.port()) == port);
        master.ok_or_else(|| Error(format!("{} names an unknown master: {address}", sentinel.address())))
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
