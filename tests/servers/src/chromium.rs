//! Chromium, which shows a page as its users see it.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::kind::Program;
use super::process::Process;
use super::{Error, fetch};

/// A Chromium without a window, controlled through a pipe. It ends with this value, or with this
/// process.
///
/// It is the one at the path in `TOLLGATE_CHROMIUM`, else `chromium` on the `PATH`, else the
/// package `chromium` of Debian: downloaded by `apt-get` and unpacked, not installed. The download
/// has up to 200 MB.
///
/// It runs without its sandbox, which root may not use: open only pages of your own with it.
#[derive(Debug)]
pub struct Chromium {
    commands: PipeWriter,
    messages: Receiver<String>,
    log: PathBuf,
    // Before the directory, so that the browser has ended when its files are removed.
    _process: Process,
    _directory: TempDir,
}

/// Gives the browser the pipes as file descriptors 3 and 4, where it expects them.
const LAUNCH: &str = r#"exec 3<&0 4>&1 </dev/null >/dev/null; exec "$@""#;

/// How long to wait for a message.
const PATIENCE: Duration = Duration::from_secs(60);

impl Chromium {
    /// Starts Chromium with an empty profile.
    ///
    /// ```no_run
    /// use tollgate_test_servers::{Chromium, Error};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let mut chromium = Chromium::start()?;
    /// chromium.send(r#"{"id":1,"method":"Browser.getVersion"}"#)?;
    /// println!("{}", chromium.receive()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no Chromium, with the ways to get it; or if it cannot be started.
    pub fn start() -> Result<Chromium, Error> {
        let program = program()?;
        let failed = |error: std::io::Error| Error(format!("chromium cannot be started: {error}"));
        let directory = tempfile::tempdir().map_err(failed)?;
        let (browser_input, commands) = pipe().map_err(failed)?;
        let (output, browser_output) = pipe().map_err(failed)?;
        let log = directory.path().join("log");
        let errors = File::create(&log).map_err(failed)?;
        let mut process = Process::new(directory.path())?;
        process
            .start(launch(program, &directory).stdin(browser_input).stdout(browser_output).stderr(errors))?;
        let (sender, messages) = channel();
        thread::spawn(move || forward(output, &sender));
        Ok(Chromium { commands, messages, log, _process: process, _directory: directory })
    }

    /// Sends a message of the [DevTools protocol](https://chromedevtools.github.io/devtools-protocol/).
    ///
    /// # Errors
    /// If the browser has ended.
    pub fn send(&mut self, message: &str) -> Result<(), Error> {
        let bytes = [message.as_bytes(), b"\0"].concat();
        self.commands.write_all(&bytes).map_err(|error| self.failure(&error))
    }

    /// Waits for the next message of the browser: an answer or an event.
    ///
    /// # Errors
    /// If the browser has ended, or sends nothing for a minute.
    pub fn receive(&self) -> Result<String, Error> {
        self.messages.recv_timeout(PATIENCE).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &dyn Display) -> Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Error(format!("chromium does not answer: {error}; its log:\n{log}"))
    }
}

/// A process downloads it only once: several tests may start at the same time.
fn program() -> Result<Program, Error> {
    static FOUND: OnceLock<Result<Program, Error>> = OnceLock::new();
    let find = || fetch::tool("chromium", "TOLLGATE_CHROMIUM", "usr/lib/chromium/chromium");
    FOUND.get_or_init(find).clone()
}

fn launch(program: Program, directory: &TempDir) -> Command {
    let mut command = Program { path: "sh".into(), environment: program.environment }.command();
    command.args(["-c", LAUNCH, "sh"]).arg(program.path);
    command.args(["--headless=new", "--no-sandbox", "--no-first-run", "--remote-debugging-pipe"]);
    // A browser that is killed leaves its temporary files.
    command.env("TMPDIR", directory.path());
    // Containers have little shared memory.
    command.arg("--disable-dev-shm-usage");
    command.arg(format!("--user-data-dir={}", directory.path().join("profile").display()));
    command
}

/// Passes on messages, each of which ends with a zero, until the browser or the receiver ends.
fn forward(output: PipeReader, sender: &Sender<String>) {
    for message in BufReader::new(output).split(0).map_while(Result::ok) {
        if sender.send(String::from_utf8_lossy(&message).into_owned()).is_err() {
            return;
        }
    }
}
