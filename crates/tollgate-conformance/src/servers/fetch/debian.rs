//! Programs of the distribution, by apt: fetched and unpacked, not installed.

use std::env::{self, consts::ARCH};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cached, check, run, workshop};
use crate::servers::Error;
use crate::servers::kind::{Kind, Program};

/// The package that has the server: the one named `redis-server` holds only a link and a service.
const PACKAGE: &str = "redis-tools";

pub(super) fn program() -> Result<Program, Error> {
    let directory = cached(&format!("debian-redis-{ARCH}"), fetch)?;
    in_directory(&directory, "usr/bin/redis-server")
}

/// nginx.
pub(super) fn nginx() -> Result<Program, Error> {
    let directory = cached(&format!("debian-nginx-{ARCH}"), |directory| unpack("nginx", directory))?;
    in_directory(&directory, "usr/sbin/nginx")
}

/// The program at that path, with the libraries that were fetched because the system lacks them.
fn in_directory(directory: &Path, path: &str) -> Result<Program, Error> {
    let mut libraries = Vec::new();
    for parent in ["usr/lib", "lib"].map(|parent| directory.join(parent)).iter().filter(|path| path.is_dir())
    {
        libraries.extend(entries(parent)?.into_iter().filter(|path| path.is_dir()));
    }
    let mut program = Program::new(directory.join(path));
    if let (false, Ok(libraries)) = (libraries.is_empty(), env::join_paths(&libraries)) {
        program.environment.push(("LD_LIBRARY_PATH", libraries));
    }
    Ok(program)
}

/// Unpacks a package and its missing dependencies into the directory.
fn unpack(package: &str, directory: &Path) -> Result<(), Error> {
    let workshop = workshop()?;
    for package in download(package, workshop.path())? {
        run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(directory))?;
    }
    Ok(())
}

/// Unpacks the server of Redis into the directory.
fn fetch(directory: &Path) -> Result<(), Error> {
    unpack(PACKAGE, directory)?;
    // One program that goes by the name it is called by.
    let program = in_directory(directory, "usr/bin/redis-server")?;
    fs::rename(directory.join("usr/bin/redis-check-rdb"), &program.path)
        .map_err(|error| Error(format!("no redis-check-rdb in {PACKAGE}: {error}")))?;
    check(Kind::Installed, program).map(drop)
}

/// Downloads the package with all that it needs and the system does not have.
///
/// `--reinstall` is for where it is installed, but without the link to the server.
fn download(package: &str, workshop: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error: io::Error| Error(format!("{}: {error}", workshop.display()));
    for directory in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(workshop.join(directory)).map_err(failed)?;
    }
    let options = workshop.join("apt.conf");
    fs::write(&options, private(workshop)).map_err(failed)?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.arg("--config-file").arg(&options).args(["--quiet", "--yes"]);
        command
    };
    // A source that cannot be reached need not be the one that has the package.
    let update = run(apt_get().arg("update"));
    run(apt_get().args(["install", "--download-only", "--reinstall", "--no-install-recommends", package]))
        .map_err(|error| update.err().map_or(error.clone(), |first| Error(format!("{first}\n{error}"))))?;
    let archives = entries(&workshop.join("cache/archives"))?;
    Ok(archives.into_iter().filter(|path| path.extension() == Some(OsStr::new("deb"))).collect())
}

/// Options by which apt reads what the system has, writes elsewhere, and needs no root.
fn private(workshop: &Path) -> String {
    let workshop = workshop.display();
    format!(
        r#"Dir::State "{workshop}/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "{workshop}/cache";
// The locks are those of the system's own directories, which are not written.
Debug::NoLocking "true";
// Who fetches as root need not become a user who may not write here.
APT::Sandbox::User "root";
// Some systems clean their caches after an update: this update was none of theirs.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries =
        fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    entries.map_err(|error| Error(format!("{}: {error}", directory.display())))
}
