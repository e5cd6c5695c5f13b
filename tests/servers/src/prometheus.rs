//! Prometheus, which scrapes metrics and evaluates rules.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;

use super::process::Process;
use super::{Error, fetch, ports, retry};

/// A Prometheus on a port of 127.0.0.1. It ends with this value, or with this process.
///
/// It is the one at the path in `TOLLGATE_PROMETHEUS`, else the one on the `PATH`, else the package
/// `prometheus` of Debian or Ubuntu: downloaded by `apt-get` and unpacked, not installed.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    // Before the directory, so that the server has ended when its files are removed.
    _process: Process,
    _directory: TempDir,
}

impl Prometheus {
    /// Starts Prometheus and waits until it answers queries. `targets` are scraped each second
    /// at `/metrics`. `rules` is the content of a file of rules, which are evaluated each second.
    ///
    /// ```no_run
    /// use tollgate_test_servers::{Error, Prometheus};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let targets = [([127, 0, 0, 1], 9000).into()];
    /// let prometheus = Prometheus::start(&targets, "groups: []")?;
    /// println!("{}", prometheus.get("/api/v1/alerts")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no Prometheus, with the ways to get it; or if it does not start, with its log.
    pub fn start(targets: &[SocketAddr], rules: &str) -> Result<Prometheus, Error> {
        let program = program()?;
        let directory = tempfile::tempdir().map_err(|error| Error(format!("no directory: {error}")))?;
        let port = ports::free()?;
        let failed = |error: std::io::Error| Error(format!("{}: {error}", directory.path().display()));
        let targets: Vec<_> = targets.iter().map(|target| format!("'{target}'")).collect();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [rules.yml]\n\
             scrape_configs: [{{ job_name: tollgate, static_configs: [{{ targets: [{}] }}] }}]\n",
            targets.join(", ")
        );
        fs::write(directory.path().join("prometheus.yml"), config).map_err(failed)?;
        fs::write(directory.path().join("rules.yml"), rules).map_err(failed)?;
        let log_path = directory.path().join("log");
        let log = File::create(&log_path).map_err(failed)?;
        let mut process = Process::new(directory.path())?;
        let mut command = program.command();
        command.current_dir(directory.path());
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        process.start(&mut command)?;
        process.wait_for_port("prometheus", port, &log_path)?;
        let prometheus = Prometheus { port, _process: process, _directory: directory };
        retry("prometheus is ready", || prometheus.get("/-/ready"))?;
        Ok(prometheus)
    }

    /// Asks its HTTP API: `/api/v1/alerts`. Returns the body of the answer.
    ///
    /// # Errors
    /// If the status of the answer is not 200, with the answer.
    pub fn get(&self, path: &str) -> Result<String, Error> {
        let failed = |error: std::io::Error| Error(format!("GET {path} of prometheus: {error}"));
        let mut connection = TcpStream::connect(self.address()).map_err(failed)?;
        // Before HTTP/1.1 a body has no chunks, and ends with the connection.
        write!(connection, "GET {path} HTTP/1.0\r\n\r\n").map_err(failed)?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).map_err(failed)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.0 200 ") => Ok(body.to_owned()),
            _ => Err(Error(format!("GET {path} of prometheus: {answer}"))),
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Runs `promtool`, the tool of the same package, in this directory. Returns what it prints.
    ///
    /// # Errors
    /// If there is no Prometheus, with the ways to get it; or if the tool fails, with what it
    /// prints.
    pub fn tool(directory: &Path, arguments: &[&str]) -> Result<String, Error> {
        let mut program = program()?;
        program.path.set_file_name("promtool");
        fetch::run(program.command().current_dir(directory).args(arguments))
    }
}

fn program() -> Result<super::kind::Program, Error> {
    fetch::tool("prometheus", "TOLLGATE_PROMETHEUS", "usr/bin/prometheus")
}
