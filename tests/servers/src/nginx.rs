//! nginx as a reverse proxy.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use tempfile::TempDir;

use super::process::Process;
use super::{Error, fetch, ports};

/// An nginx on a port of 127.0.0.1. It ends with this value, or with this process.
///
/// It is the one at the path in `TOLLGATE_NGINX`, else the one on the `PATH`, else the package
/// `nginx` of Debian or Ubuntu: fetched by `apt-get` and unpacked, not installed.
#[derive(Debug)]
pub struct Nginx {
    port: u16,
    // Before the directory, so that nginx has ended when its files are removed.
    _process: Process,
    _directory: TempDir,
}

impl Nginx {
    /// Starts nginx and waits until it accepts connections. `server` is the content of its `server`
    /// block without `listen`; `upstream` holds the lines of the block `upstream app`.
    ///
    /// ```no_run
    /// use tollgate_test_servers::{Error, Nginx};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let nginx = Nginx::start("server 127.0.0.1:8080;", "location / { proxy_pass http://app; }")?;
    /// println!("http://{}/", nginx.address());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no nginx, with the ways to get it; or if it does not start, with its log.
    pub fn start(upstream: &str, server: &str) -> Result<Nginx, Error> {
        let program = fetch::tool("nginx", "TOLLGATE_NGINX", "usr/sbin/nginx")?;
        let directory = tempfile::tempdir().map_err(|error| Error(format!("no directory: {error}")))?;
        let port = ports::free()?;
        let failed = |error: std::io::Error| Error(format!("{}: {error}", directory.path().display()));
        fs::write(directory.path().join("nginx.conf"), config(port, upstream, server)).map_err(failed)?;
        let log_path = directory.path().join("log");
        let log = File::create(&log_path).map_err(failed)?;
        let mut process = Process::new(directory.path())?;
        let mut command = program.command();
        command.arg("-p").arg(directory.path()).args(["-c", "nginx.conf", "-e", "stderr"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        process.start(&mut command)?;
        process.wait_for_port("nginx", port, &log_path)?;
        Ok(Nginx { port, _process: process, _directory: directory })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

/// One process in the foreground, which writes below its own directory only.
fn config(port: u16, upstream: &str, server: &str) -> String {
    format!(
        "daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    upstream app {{ {upstream} }}
    server {{
        listen 127.0.0.1:{port};
        {server}
    }}
}}
"
    )
}
