//! Connects to the master that Sentinels name.
//!
//! The Sentinel client of the `redis` crate is not used. It asks one Sentinel after another in the
//! order of the URL, with its own timeouts, and repeats that for each connection. The first
//! Sentinel is often on the machine that has failed.

use bb8_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value, cmd,
    from_redis_value,
};
use tokio::select;
use tokio::task::JoinSet;

use super::call::Timeouts;
use super::open::{Address, Connecting, Opened, at, open};
use super::topology::SentinelTopology;
use crate::error::is_configuration;

pub(super) struct Sentinels {
    addresses: Vec<ConnectionInfo>,
    master: String,
    /// The settings for connections to the master. Its address is replaced.
    server: ConnectionInfo,
    connecting: Connecting,
}

impl Sentinels {
    pub(super) fn new(sentinel: SentinelTopology, connecting: Connecting) -> Sentinels {
        let SentinelTopology { sentinels: addresses, master, server } = sentinel;
        Sentinels { addresses, master, server, connecting }
    }

    /// Asks all Sentinels at once, and connects to each address that they name. The first
    /// connection to a master is returned.
    pub(super) async fn connect(&self) -> Result<Opened, RedisError> {
        let (mut asked, mut connecting) = (JoinSet::new(), JoinSet::new());
        for address in &self.addresses {
            asked.spawn(master_address(address.clone(), self.master.clone(), self.connecting.timeouts));
        }
        let mut named: Vec<Address> = Vec::new();
        // The errors of named masters, and those of Sentinels.
        let (mut master_error, mut sentinel_error): (Option<RedisError>, Option<RedisError>) = (None, None);
        loop {
            select! {
                Some(answer) = asked.join_next() => match answer {
                    Ok(Ok(address)) if named.contains(&address) => {}
                    // This may be the old master, if a Sentinel does not know the new one yet. So
                    // the other Sentinels are awaited as well.
                    Ok(Ok(address)) => {
                        connecting.spawn(connect(at(&self.server, &address), self.connecting.clone()));
                        named.push(address);
                    }
                    // A configuration error is more important than one that may pass.
                    Ok(Err(error)) if sentinel_error.is_none() || is_configuration(&error) => {
                        sentinel_error = Some(error);
                    }
                    _ => {}
                },
                Some(connected) = connecting.join_next() => match connected {
                    Ok(Ok(connected)) => return Ok(connected),
                    // Another server may have the old master's address now, so its configuration
                    // error is less important than an error that may pass.
                    Ok(Err(error)) if master_error.is_none() || !is_configuration(&error) => {
                        master_error = Some(error);
                    }
                    _ => {}
                },
                else => break,
            }
        }
        Err(master_error
            .or(sentinel_error)
            .unwrap_or_else(|| (ErrorKind::EmptySentinelList, "the URL names no Sentinels").into()))
    }
}

/// Connects to a server, and checks that it is a master.
async fn connect(server: ConnectionInfo, connecting: Connecting) -> Result<Opened, RedisError> {
    let mut opened = open(server, connecting).await?;
    let role: Vec<Value> = cmd("ROLE").query_async(&mut opened.connection).await?;
    let is_master = role.into_iter().next().map(from_redis_value::<String>);
    if !matches!(is_master, Some(Ok(role)) if role == "master") {
        // The master was demoted, and the Sentinel does not know yet.
        let what = "the server that the Sentinels name as the master is a replica";
        return Err((ErrorKind::Server(ServerErrorKind::MasterDown), what).into());
    }
    Ok(opened)
}

/// Asks a Sentinel for the address of the master, which may be up or down.
async fn master_address(
    sentinel: ConnectionInfo,
    master: String,
    timeouts: Timeouts,
) -> Result<Address, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeouts.connect))
        .set_response_timeout(Some(timeouts.response));
    let mut connection =
        Client::open(sentinel)?.get_multiplexed_async_connection_with_config(&config).await?;
    let named: Option<(String, u16)> =
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&master).query_async(&mut connection).await?;
    named.ok_or_else(|| {
        (ErrorKind::MasterNameNotFoundBySentinel, "the Sentinels know no master of this name").into()
    })
}
