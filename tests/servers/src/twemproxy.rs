//! twemproxy, a proxy for Redis that speaks RESP2 only and closes connections on unknown commands.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::Stdio;

use tempfile::TempDir;

use super::process::Process;
use super::{Error, fetch, ports};

/// A twemproxy on a port of 127.0.0.1. It ends with this value, or with this process.
///
/// It is the one at the path in `TOLLGATE_NUTCRACKER`, else `nutcracker` on the `PATH`, else the
/// package `nutcracker` of Debian or Ubuntu: downloaded by `apt-get` and unpacked, not installed.
#[derive(Debug)]
pub struct Twemproxy {
    port: u16,
    // Before the directory, so that the proxy has ended when its files are removed.
    _process: Process,
    _directory: TempDir,
}

impl Twemproxy {
    /// Starts twemproxy in front of these servers, and waits until it accepts connections. It
    /// spreads keys over several servers by their hashes.
    ///
    /// # Errors
    /// If there is no twemproxy, with the ways to get it; or if it does not start, with its log.
    pub fn start(servers: &[SocketAddr]) -> Result<Twemproxy, Error> {
        let program = fetch::tool("nutcracker", "TOLLGATE_NUTCRACKER", "usr/sbin/nutcracker")?;
        let directory = tempfile::tempdir().map_err(|error| Error(format!("no directory: {error}")))?;
        let (port, stats) = (ports::free()?, ports::free()?);
        let failed = |error: std::io::Error| Error(format!("{}: {error}", directory.path().display()));
        let servers: String = servers.iter().map(|server| format!("   - {server}:1\n")).collect();
        let pool = format!(
            "pool:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash_tag: \"{{}}\"\n  servers:\n{servers}"
        );
        fs::write(directory.path().join("nutcracker.yml"), pool).map_err(failed)?;
        let log_path = directory.path().join("log");
        let log = File::create(&log_path).map_err(failed)?;
        let mut process = Process::new(directory.path())?;
        let mut command = program.command();
        command.current_dir(directory.path()).args([
            "-c",
            "nutcracker.yml",
            "-p",
            "pid",
            "-a",
            "127.0.0.1",
            // The default of the package is a directory that only its installation makes.
            "-o",
            "log",
            "-s",
        ]);
        command.arg(stats.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        process.start(&mut command)?;
        process.wait_for_port("twemproxy", port, &log_path)?;
        Ok(Twemproxy { port, _process: process, _directory: directory })
    }

    /// The URL of its one pool.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}
