//! A single Redis or Valkey server.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::kind::{Kind, Program};
use super::process::Process;
use super::{ATTEMPTS, Error, PAUSE, fetch, ports, resp};

const LOG: &str = "log";

/// A server on a port of 127.0.0.1, with an empty data directory and without persistence.
///
/// It ends when this value is dropped and when this process ends, however that happens. So a server
/// in a `static`, shared by many tests, does not stay behind either.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    program: Program,
    port: u16,
    arguments: Vec<String>,
    // Before the directory: fields drop in order, and the server must end first.
    process: Mutex<Process>,
    directory: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// If there is no such server, with the ways to get it. If it does not start, with the end of
    /// its log.
    pub fn start(kind: Kind) -> Result<Server, Error> {
        Server::start_with(kind, &[])
    }

    /// Starts a server with more arguments, which override the defaults: `["--maxmemory", "2mb"]`.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(kind: Kind, arguments: &[&str]) -> Result<Server, Error> {
        Server::run(kind, fetch::program(kind)?, arguments)
    }

    /// Starts a server whose clock is behind by `behind`, in whole seconds. This affects `TIME` and
    /// the expiry of keys, as on a machine with a wrong clock.
    ///
    /// Needs libfaketime: the path in `TOLLGATE_LIBFAKETIME`, or else the pinned PyPI package
    /// libfaketime on Linux on x86-64. The server must not have an allocator that reads the time
    /// before libfaketime can ([`Kind::Installed`] may have one).
    ///
    /// # Errors
    /// As [`Server::start`]. If there is no libfaketime, with the ways to get it.
    pub fn start_behind(kind: Kind, behind: Duration, arguments: &[&str]) -> Result<Server, Error> {
        Server::run(kind, fetch::behind(fetch::program(kind)?, behind)?, arguments)
    }

    fn run(kind: Kind, program: Program, arguments: &[&str]) -> Result<Server, Error> {
        let mut attempts = 20;
        loop {
            let server = Server::new(kind, program.clone(), arguments)?;
            match server.bring_up() {
                Ok(()) => return Ok(server),
                // Another process has taken the port since it was found free.
                Err(Failure::PortTaken(_)) if attempts > 0 => attempts -= 1,
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// The kind of this server.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The port of this server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of this server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `redis://127.0.0.1:PORT/`
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// The ID of its process, unless it was killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().id()
    }

    /// Sends a command over a new connection. Returns the answer as `redis-cli --raw` prints it: an
    /// element of an array per line, and a null as an empty text. Invalid UTF-8 is replaced.
    ///
    /// ```no_run
    /// # use tollgate_test_servers::{Error, Kind, Server};
    /// # fn main() -> Result<(), Error> {
    /// let server = Server::start(Kind::Installed)?;
    /// assert_eq!(server.command(&["INCRBY", "a", "2"])?, "2");
    /// assert_eq!(server.command(&["CONFIG", "GET", "save"])?, "save\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the answer is an error, or does not arrive within ten seconds.
    pub fn command(&self, words: &[&str]) -> Result<String, Error> {
        let answer = self.ask(words)?;
        Ok(String::from_utf8_lossy(&answer.join(&b'\n')).into_owned())
    }

    /// Kills the server with SIGKILL. Its connections are reset, and its port refuses new ones.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Kills the server if it runs, starts it on the same port, and waits until it answers.
    ///
    /// It starts empty unless its arguments enable persistence (`--appendonly yes`). Cluster nodes
    /// and sentinels remember the other nodes.
    ///
    /// # Errors
    /// If it does not start, with the end of its log.
    pub fn restart(&self) -> Result<(), Error> {
        self.bring_up().map_err(Error::from)
    }

    /// Pauses the server with SIGSTOP: its port accepts connections, and it does not answer.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self) -> Result<(), Error> {
        self.process().pause(true)
    }

    /// Resumes the server after [`Server::pause`].
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self) -> Result<(), Error> {
        self.process().pause(false)
    }

    pub(super) fn ask(&self, words: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, Error> {
        resp::ask(self.address(), Duration::from_secs(10), words)
    }

    /// Whether it was neither killed nor paused.
    pub(super) fn is_running(&self) -> bool {
        self.process().is_running()
    }

    fn new(kind: Kind, program: Program, arguments: &[&str]) -> Result<Server, Error> {
        let port = ports::free()?;
        let directory = tempfile::Builder::new().prefix("tollgate-server-").tempdir();
        let directory = directory.map_err(|error| Error(format!("no directory for a server: {error}")))?;
        let arguments = arguments.iter().copied().map(str::to_owned).collect();
        let process = Mutex::new(Process::new(directory.path())?);
        Ok(Server { kind, program, port, arguments, process, directory })
    }

    fn bring_up(&self) -> Result<(), Failure> {
        let mut process = self.process();
        let pid = process.start(&mut self.launch()?)?;
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match self.is_up(pid) {
                Ok(()) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            if let Some(status) = process.ended() {
                return Err(self.failure(&format!("{} ended with {status}", self.kind)));
            }
            thread::sleep(PAUSE);
        }
        Err(self.failure(&format!("{} does not come up: {last}", self.kind)))
    }

    /// Checks that this process answers at the port. A server of another process may have taken it.
    fn is_up(&self, pid: u32) -> Result<(), Error> {
        let info = resp::ask(self.address(), Duration::from_secs(1), &["INFO", "server"])?;
        if String::from_utf8_lossy(&info.concat()).contains(&format!("process_id:{pid}\r\n")) {
            return Ok(());
        }
        Err(Error::new("another process answers; if the server is started by a script, that must exec it"))
    }

    fn launch(&self) -> Result<Command, Error> {
        let failed = |path: &Path, error| Error(format!("{}: {error}", path.display()));
        let directory = self.directory.path();
        let mut command = self.program.command();
        // A file that the server may write: sentinels store the nodes that they know in it.
        let config = directory.join("server.conf");
        File::options().append(true).create(true).open(&config).map_err(|error| failed(&config, error))?;
        command.arg(config);
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--dir"]).arg(directory);
        command.args(["--save", "", "--appendonly", "no"]);
        // Replicas need not wait for further replicas.
        command.args(["--repl-diskless-sync-delay", "0"]);
        command.args(&self.arguments);
        let log = directory.join(LOG);
        let output = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (output, errors) = output.map_err(|error| failed(&log, error))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        Ok(command)
    }

    fn failure(&self, text: &str) -> Failure {
        const LINES: usize = 20;
        let log = fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default();
        let from = log.lines().count().saturating_sub(LINES);
        let end: Vec<_> = log.lines().skip(from).collect();
        let error = Error(format!("{text}; its log ends so:\n{}", end.join("\n")));
        let is_taken = log.contains("already in use");
        if is_taken { Failure::PortTaken(error) } else { Failure::Other(error) }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        // A panic in another test must not prevent that this server is killed.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn start_all(kind: Kind, arguments: &[&[&str]]) -> Result<Vec<Server>, Error> {
    thread::scope(|scope| {
        let start = |arguments| scope.spawn(move || Server::start_with(kind, arguments));
        let started: Vec<_> = arguments.iter().copied().map(start).collect();
        started.into_iter().map(|server| server.join().expect("starting a server does not panic")).collect()
    })
}

/// Whether a replica is in sync with its master.
pub(super) fn follows(replica: &Server) -> Result<(), Error> {
    let info = replica.command(&["INFO", "replication"])?;
    if info.contains("master_link_status:up") { Ok(()) } else { Err(Error(info)) }
}

enum Failure {
    PortTaken(Error),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Other(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::PortTaken(error) | Failure::Other(error) => error,
        }
    }
}
