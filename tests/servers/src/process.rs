//! The process of a server, which ends with the process that started it.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::{Error, retry};

/// Reads the server's process ID from its input whenever it changes. At the end of the input, when
/// the other process has closed the pipe or is dead, it kills the server and removes its directory.
const WATCHDOG: &str = r#"
while read -r line; do server=$line; done
if [ -n "$server" ]; then kill -KILL "$server"; fi
rm -rf "$1"
"#;

/// A server's process and its watchdog.
///
/// The kernel closes a pipe however its process ends: by a panic, by `abort`, by SIGKILL. On Linux,
/// the alternative (PDEATHSIG) is bound to the *thread* that started the server. A server that
/// several tests share would end with the first of them. The server stays a child, so its ID is not
/// reused.
#[derive(Debug)]
pub(super) struct Process {
    server: Option<Child>,
    is_paused: bool,
    watchdog: Child,
}

impl Process {
    /// The watchdog of a server with this directory, without a process yet.
    pub(super) fn new(directory: &Path) -> Result<Process, Error> {
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "watchdog"]).arg(directory);
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its own process group: Ctrl-C would otherwise end the watchdog before it has cleaned up.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut watchdog, 0);
        let watchdog = watchdog
            .spawn()
            .map_err(|error| Error(format!("cannot start sh as the watchdog of a server: {error}")))?;
        Ok(Process { server: None, is_paused: false, watchdog })
    }

    pub(super) fn start(&mut self, command: &mut Command) -> Result<u32, Error> {
        self.kill();
        let server = command.spawn();
        let server =
            server.map_err(|error| Error(format!("{}: {error}", command.get_program().display())))?;
        let id = server.id();
        self.server = Some(server);
        self.watch(&id.to_string())?;
        Ok(id)
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.server.as_mut().and_then(|server| server.try_wait().ok().flatten())
    }

    /// Waits until the process accepts connections. If it ends, fails with its log.
    pub(super) fn wait_for_port(&mut self, name: &str, port: u16, log: &Path) -> Result<(), Error> {
        let ended = retry(&format!("{name} accepts connections"), || {
            if let Some(status) = self.ended() {
                return Ok(Some(status));
            }
            let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            connection.map(|_| None).map_err(|error| Error(error.to_string()))
        })?;
        ended.map_or(Ok(()), |status| {
            let log = fs::read_to_string(log).unwrap_or_default();
            Err(Error(format!("{name} ended with {status}: {log}")))
        })
    }

    pub(super) fn is_running(&self) -> bool {
        self.server.is_some() && !self.is_paused
    }

    /// Stops the server with SIGSTOP, or continues it with SIGCONT.
    pub(super) fn pause(&mut self, pause: bool) -> Result<(), Error> {
        let id = self.id().ok_or_else(|| Error::new("the server is not running"))?;
        let signal = if pause { "STOP" } else { "CONT" };
        // The shell's builtin: some machines have no `kill` program.
        let kill = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "signal", signal, &id.to_string()])
            .status();
        if kill.is_ok_and(|status| status.success()) {
            self.is_paused = pause;
            return Ok(());
        }
        Err(Error(format!("cannot send SIG{signal} to process {id}")))
    }

    pub(super) fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        self.is_paused = false;
        // Fails if the server has already ended.
        let _ = server.kill().and_then(|()| server.wait());
        // The ID may be reused from now on. If the watchdog is gone, it kills nothing anyway.
        let _ = self.watch("");
    }

    fn watch(&mut self, line: &str) -> Result<(), Error> {
        let written = self.watchdog.stdin.as_mut().map(|pipe| writeln!(pipe, "{line}"));
        written.transpose().map(drop).map_err(|error| Error(format!("the watchdog of a server: {error}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // `wait` closes the pipe first.
        let _ = self.watchdog.wait();
    }
}
