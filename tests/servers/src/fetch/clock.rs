//! Another time for a process: libfaketime, downloaded with pip.

use std::env;
use std::env::consts::{ARCH, OS};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{run, wheel};
use crate::Error;
use crate::kind::{Program, Wheel};

const VARIABLE: &str = "TOLLGATE_LIBFAKETIME";

const WHEEL: Wheel = Wheel {
    requirement: "libfaketime==3.0.1",
    platform: "any",
    sha256: "5eed7c17f3d4ba0f6f828de4975f69a622b06b1e792674e6c1b069c0689fab79",
    file: "libfaketime/vendor/libfaketime/src/libfaketime.so.1",
};

/// The same program with its clock behind by `behind`.
///
/// # Errors
/// As [`libfaketime`].
pub(crate) fn behind(program: Program, behind: Duration) -> Result<Program, Error> {
    let library = libfaketime()?;
    let mut program = program;
    program.environment.push(("LD_PRELOAD", library.into()));
    program.environment.push(("FAKETIME", format!("-{}", behind.as_secs()).into()));
    Ok(program)
}

/// Returns the path of libfaketime. A process that has it in `LD_PRELOAD` has the clock that
/// `FAKETIME` says: `+300` is five minutes ahead.
///
/// It is the one at the path in `TOLLGATE_LIBFAKETIME`, or else the pinned PyPI package libfaketime
/// on Linux on x86-64.
///
/// # Errors
/// If it is missing, or does not change the time of a program: with the ways to get it.
pub fn libfaketime() -> Result<PathBuf, Error> {
    let library = match (env::var_os(VARIABLE), OS, ARCH) {
        (Some(path), ..) => loads(Path::new(&path)),
        (None, "linux", "x86_64") => wheel::file(&WHEEL, "libfaketime.so.1", loads),
        _ => Err(Error(format!("No package is known that has it for {OS} on {ARCH}."))),
    };
    library.map_err(|error| {
        let requirement = WHEEL.requirement;
        Error(format!(
            "libfaketime cannot be had.\n{error}\nTo get it, set {VARIABLE} to the path of libfaketime.so.1, or see to it \
             that python3 -m pip can download {requirement}."
        ))
    })
}

/// Returns the path if that library changes the time of a program.
fn loads(path: &Path) -> Result<PathBuf, Error> {
    let mut date = Program::new("date");
    date.environment = vec![("LD_PRELOAD", path.into()), ("FAKETIME", "2001-02-03 04:05:06".into())];
    let answer = run(date.command().args(["-u", "+%Y"]))?;
    if answer == "2001" {
        Ok(path.to_owned())
    } else {
        Err(Error(format!("{} does not change what time it is", path.display())))
    }
}
