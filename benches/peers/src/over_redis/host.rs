//! The server of all measurements.

use std::error::Error;
use std::time::Duration;

use clap::ValueEnum;
use redis::{Client, Connection, cmd};
use tollgate_test_servers::Server;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Installed,
    #[value(name = "redis-6.2")]
    Redis6_2,
    #[value(name = "redis-8.2")]
    Redis8_2,
    #[value(name = "valkey-9.1")]
    Valkey9_1,
}

pub(crate) struct Host {
    url: String,
    control: Connection,
    started: Option<Server>,
}

impl Host {
    pub(crate) fn start(kind: Kind) -> Result<Host, Failure> {
        let server = Server::start(match kind {
            Kind::Installed => tollgate_test_servers::Kind::Installed,
            Kind::Redis6_2 => tollgate_test_servers::Kind::Redis6_2,
            Kind::Redis8_2 => tollgate_test_servers::Kind::Redis8_2,
            Kind::Valkey9_1 => tollgate_test_servers::Kind::Valkey9_1,
        })?;
        let host = Host::at(&server.url())?;
        Ok(Host { started: Some(server), ..host })
    }

    /// Connects to a running server.
    ///
    /// # Errors
    /// Also if the database holds keys, which the comparison would delete.
    pub(crate) fn at(url: &str) -> Result<Host, Failure> {
        let mut control = Client::open(url)?.get_connection()?;
        let keys: u64 = cmd("DBSIZE").query(&mut control)?;
        if keys > 0 {
            return Err(format!("{url} holds {keys} keys, which this comparison would delete").into());
        }
        Ok(Host { url: url.to_owned(), control, started: None })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Deletes all keys; scripts stay loaded.
    pub(crate) fn empty(&mut self) -> Result<(), Failure> {
        Ok(cmd("FLUSHDB").query(&mut self.control)?)
    }

    /// The processor time that the server has used so far.
    pub(crate) fn cpu(&mut self) -> Result<Duration, Failure> {
        let info = self.info("cpu")?;
        let mut taken = Duration::ZERO;
        for name in ["used_cpu_user", "used_cpu_sys"] {
            let seconds = field(&info, name).ok_or_else(|| format!("INFO cpu has no {name}"))?;
            taken += Duration::from_secs_f64(seconds.parse()?);
        }
        Ok(taken)
    }

    pub(crate) fn title(&mut self) -> Result<String, Failure> {
        let info = self.info("server")?;
        let (name, version) = match field(&info, "valkey_version") {
            Some(version) => ("Valkey", Some(version)),
            None => ("Redis", field(&info, "redis_version")),
        };
        let origin = if self.started.is_some() { "started for this run" } else { "already running" };
        Ok(format!("{name} {}, {origin}", version.unwrap_or("?")))
    }

    fn info(&mut self, section: &str) -> Result<String, Failure> {
        Ok(cmd("INFO").arg(section).query(&mut self.control)?)
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
