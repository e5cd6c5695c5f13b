//! The master that Sentinels name.
//!
//! The client of the `redis` crate is not used here: it waits for its Sentinels in the order of the URL, by times of its own,
//! and does so for one connection after another. The Sentinel that is asked first is often on the machine that is gone.

use bb8_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value, cmd,
    from_redis_value,
};
use tokio::select;
use tokio::task::JoinSet;

use super::open::{Address, Opened, Timeouts, at, open};
use super::topology::Sentinel;
use crate::error::is_configuration;

pub(super) struct Sentinels {
    addresses: Vec<ConnectionInfo>,
    master: String,
    /// How to connect to the master, but for where it is.
    server: ConnectionInfo,
    timeouts: Timeouts,
}

impl Sentinels {
    pub(super) fn new(sentinel: Sentinel, timeouts: Timeouts) -> Sentinels {
        let Sentinel { sentinels: addresses, master, server } = sentinel;
        Sentinels { addresses, master, server, timeouts }
    }

    /// Connects to the master, by the account of the first Sentinel whose account is right.
    pub(super) async fn connect(&self) -> Result<Opened, RedisError> {
        let (mut asked, mut connecting) = (JoinSet::new(), JoinSet::new());
        for address in &self.addresses {
            asked.spawn(master_address(address.clone(), self.master.clone(), self.timeouts));
        }
        let mut named: Vec<Address> = Vec::new();
        // What stands in the way of a master that is named, and what befell Sentinels.
        let (mut master_error, mut sentinel_error): (Option<RedisError>, Option<RedisError>) = (None, None);
        loop {
            select! {
                Some(answer) = asked.join_next() => match answer {
                    Ok(Ok(address)) if named.contains(&address) => {}
                    // One that has not heard yet may name a machine that is gone: the others are heard meanwhile.
                    Ok(Ok(address)) => {
                        connecting.spawn(connect(at(&self.server, &address), self.timeouts));
                        named.push(address);
                    }
                    // What has to be mended is told rather than what may pass.
                    Ok(Err(error)) if sentinel_error.is_none() || is_configuration(&error) => {
                        sentinel_error = Some(error);
                    }
                    _ => {}
                },
                Some(connected) = connecting.join_next() => match connected {
                    Ok(Ok(connected)) => return Ok(connected),
                    // Another server may be where the master was: what may pass is told rather than that.
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

/// Connects to what should be the master.
async fn connect(server: ConnectionInfo, timeouts: Timeouts) -> Result<Opened, RedisError> {
    let mut opened = open(server, timeouts).await?;
    let role: Vec<Value> = cmd("ROLE").query_async(&mut opened.connection).await?;
    let is_master = role.into_iter().next().map(from_redis_value::<String>);
    if !matches!(is_master, Some(Ok(role)) if role == "master") {
        // It was demoted, and its Sentinel has not heard of it.
        let what = "a replica is where the Sentinels see the master";
        return Err((ErrorKind::Server(ServerErrorKind::MasterDown), what).into());
    }
    Ok(opened)
}

/// Asks a Sentinel where the master is, be that up or down.
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
        (ErrorKind::MasterNameNotFoundBySentinel, "a Sentinel knows no master of that name").into()
    })
}
