//! Programs of the distribution: downloaded with apt and unpacked, not installed.

use std::env::{self, consts::ARCH};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cached, check, run, scratch};
use crate::Error;
use crate::kind::{Kind, Program};

/// The package with the program: `redis-server` only contains a link and a service.
const PACKAGE: &str = "redis-tools";

pub(super) fn program() -> Result<Program, Error> {
    let directory = cached(&format!("debian-redis-{ARCH}"), fetch)?;
    in_directory(&directory, "usr/bin/redis-server")
}

/// The program at `path` in the package of this name.
pub(super) fn tool(package: &str, path: &str) -> Result<Program, Error> {
    let directory = cached(&format!("debian-{package}-{ARCH}"), |directory| unpack(package, directory))?;
    in_directory(&directory, path)
}

/// The program at that path, with the downloaded libraries that the system lacks.
fn in_directory(directory: &Path, path: &str) -> Result<Program, Error> {
    let mut libraries = Vec::new();
    for parent in ["usr/lib", "lib"].map(|parent| directory.join(parent)).iter().filter(|path| path.is_dir())
    {
        for outer in directories(parent)? {
            // Some packages have a directory for libraries of their own.
            let inner = directories(&outer)?;
            libraries.push(outer);
            libraries.extend(inner);
        }
    }
    let mut program = Program::new(directory.join(path));
    if let (false, Ok(libraries)) = (libraries.is_empty(), env::join_paths(&libraries)) {
        program.environment.push(("LD_LIBRARY_PATH", libraries));
    }
    Ok(program)
}

/// Unpacks a package and its missing dependencies into the directory.
fn unpack(package: &str, directory: &Path) -> Result<(), Error> {
    let scratch = scratch()?;
    for package in download(package, scratch.path())? {
        run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(directory))?;
    }
    Ok(())
}

fn fetch(directory: &Path) -> Result<(), Error> {
    unpack(PACKAGE, directory)?;
    // The same program is the server if it is called by that name.
    let program = in_directory(directory, "usr/bin/redis-server")?;
    fs::rename(directory.join("usr/bin/redis-check-rdb"), &program.path)
        .map_err(|error| Error(format!("no redis-check-rdb in {PACKAGE}: {error}")))?;
    check(Kind::Installed, program).map(drop)
}

/// Downloads the package with the dependencies that the system lacks.
///
/// `--reinstall` is for systems on which it is installed without the link to the server.
fn download(package: &str, scratch: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error: io::Error| Error(format!("{}: {error}", scratch.display()));
    for directory in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(scratch.join(directory)).map_err(failed)?;
    }
    let options = scratch.join("apt.conf");
    fs::write(&options, private(scratch)).map_err(failed)?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.arg("--config-file").arg(&options).args(["--quiet", "--yes"]);
        command
    };
    // A source that cannot be reached may not be the one with the package.
    let update = run(apt_get().arg("update"));
    run(apt_get().args(["install", "--download-only", "--reinstall", "--no-install-recommends", package]))
        .map_err(|error| update.err().map_or(error.clone(), |first| Error(format!("{first}\n{error}"))))?;
    let archives = entries(&scratch.join("cache/archives"))?;
    Ok(archives.into_iter().filter(|path| path.extension() == Some(OsStr::new("deb"))).collect())
}

/// Options for apt to read the system's state, write elsewhere, and run without root.
fn private(scratch: &Path) -> String {
    let scratch = scratch.display();
    format!(
        r#"Dir::State "{scratch}/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "{scratch}/cache";
// The locks protect the system's directories, which are not written.
Debug::NoLocking "true";
// The sandbox user might not be allowed to write here.
APT::Sandbox::User "root";
// Some systems clean their caches after an update, which this one must not trigger.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

fn directories(parent: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(entries(parent)?.into_iter().filter(|path| path.is_dir()).collect())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries =
        fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    entries.map_err(|error| Error(format!("{}: {error}", directory.display())))
}
