//! The process of a server, which does not outlive the one that started it.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::Error;

/// Reads the number of the server's process whenever that changes. At the end of its input, that is, once whoever holds
/// the other end of the pipe has let go or is dead, kills the server and removes its directory.
const WATCHDOG: &str = r#"
while read -r line; do server=$line; done
if [ -n "$server" ]; then kill -KILL "$server"; fi
rm -rf "$1"
"#;

/// A server's process, started or not, and its watchdog.
///
/// The kernel closes a pipe however its holder ends: by a panic, by `abort`, by SIGKILL. The alternative, to have the
/// kernel kill the server along with its parent, is tied on Linux to the *thread* that started it, so that a server which
/// several tests share would end with the first of them. The server stays a child of this process, so that it can be
/// signalled and awaited, and its number cannot be another's.
#[derive(Debug)]
pub(super) struct Process {
    server: Option<Child>,
    is_paused: bool,
    watchdog: Child,
}

impl Process {
    /// No process yet, and the watchdog of a server whose directory that is.
    pub(super) fn new(directory: &Path) -> Result<Process, Error> {
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "watchdog"]).arg(directory);
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A Ctrl-C at the terminal ends whole groups, and would end the watchdog before it has done its work.
        std::os::unix::process::CommandExt::process_group(&mut watchdog, 0);
        let watchdog =
            watchdog.spawn().map_err(|error| Error(format!("no sh to watch a server: {error}")))?;
        Ok(Process { server: None, is_paused: false, watchdog })
    }

    /// Starts the server by that command, after an end of the one before.
    pub(super) fn start(&mut self, command: &mut Command) -> Result<u32, Error> {
        self.kill();
        let server = command.spawn();
        let server =
            server.map_err(|error| Error(format!("{}: {error}", command.get_program().display())))?;
        let id = server.id();
        self.server = Some(server);
        self.tell(&id.to_string())?;
        Ok(id)
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// How the server ended, if it did by itself.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.server.as_mut().and_then(|server| server.try_wait().ok().flatten())
    }

    /// Whether the server was started and neither killed nor paused.
    pub(super) fn is_running(&self) -> bool {
        self.server.is_some() && !self.is_paused
    }

    /// Stops the server in its tracks, or lets it go on.
    pub(super) fn pause(&mut self, pause: bool) -> Result<(), Error> {
        let id = self.id().ok_or_else(|| Error::new("the server is not running"))?;
        let signal = if pause { "STOP" } else { "CONT" };
        // The shell's own kill: not every machine has a program of that name.
        let kill = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "signal", signal, &id.to_string()])
            .status();
        if kill.is_ok_and(|status| status.success()) {
            self.is_paused = pause;
            return Ok(());
        }
        Err(Error(format!("process {id} could not be sent SIG{signal}")))
    }

    /// Kills the server, if it runs, and waits for its end.
    pub(super) fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        self.is_paused = false;
        // Fails for what is not there any more.
        let _ = server.kill().and_then(|()| server.wait());
        // Its number may be another's from now on. A watchdog that is gone has nobody to kill either.
        let _ = self.tell("");
    }

    fn tell(&mut self, line: &str) -> Result<(), Error> {
        let told = self.watchdog.stdin.as_mut().map(|pipe| writeln!(pipe, "{line}"));
        told.transpose().map(drop).map_err(|error| Error(format!("the watchdog of a server: {error}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // Closes the pipe, first.
        let _ = self.watchdog.wait();
    }
}
