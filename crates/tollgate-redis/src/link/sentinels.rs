//! The master that Sentinels name.
//!
//! The client of the `redis` crate is not used here: it waits for its Sentinels in the order of the URL, by times of its own,
//! and does so for one connection after another. The Sentinel that is asked first is often on the machine that is gone.

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value, cmd,
    from_redis_value,
};
use tokio::task::JoinSet;

use super::{Address, Timeouts, at};
use crate::error::is_configuration;
use crate::topology::Sentinel;

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
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let mut asked = JoinSet::new();
        for address in &self.addresses {
            asked.spawn(ask(address.clone(), self.master.clone(), self.timeouts));
        }
        let mut tried: Vec<Address> = Vec::new();
        // What stands in the way of a master that is named is told rather than what befell Sentinels; and of these, what has to
        // be mended rather than what may pass.
        let mut failure: Option<(bool, bool, RedisError)> = None;
        while let Some(answer) = asked.join_next().await {
            let Ok(answer) = answer else { continue };
            let is_named = answer.is_ok();
            let connected = match answer {
                Ok(address) if tried.contains(&address) => continue,
                Ok(address) => {
                    tried.push(address.clone());
                    self.connect_to(&address, config).await
                }
                Err(error) => Err(error),
            };
            let error = match connected {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            let weight = (is_named, is_configuration(&error));
            if failure.as_ref().is_none_or(|(named, config, _)| weight > (*named, *config)) {
                failure = Some((weight.0, weight.1, error));
            }
        }
        Err(failure.map_or_else(
            || (ErrorKind::EmptySentinelList, "the URL names no Sentinels").into(),
            |(_, _, error)| error,
        ))
    }

    async fn connect_to(
        &self,
        address: &Address,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let client = Client::open(at(&self.server, address))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
        let role: Result<Value, RedisError> = cmd("ROLE").query_async(&mut connection).await;
        let is_master = |role: &Value| {
            let Value::Array(role) = role else { return false };
            role.first().is_some_and(|role| {
                from_redis_value::<String>(role.clone()).is_ok_and(|role| role == "master")
            })
        };
        match role {
            Ok(role) if is_master(&role) => Ok(connection),
            // It was demoted, and its Sentinel has not heard of it.
            Ok(_) => Err((
                ErrorKind::Server(ServerErrorKind::MasterDown),
                "a replica is where the Sentinels see the master",
            )
                .into()),
            Err(error) => Err(error),
        }
    }
}

/// Asks a Sentinel where the master is, be that up or down.
async fn ask(sentinel: ConnectionInfo, master: String, timeouts: Timeouts) -> Result<Address, RedisError> {
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
