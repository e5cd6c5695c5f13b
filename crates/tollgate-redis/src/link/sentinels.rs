//! The master that Sentinels name.

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use bb8_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError, ServerErrorKind,
    Value, cmd,
};
use tokio::sync::Mutex;

use super::{Timeouts, tcp_settings};
use crate::Error;
use crate::tls::Certificates;
use crate::topology::Sentinel;

pub(super) struct Sentinels {
    /// Locked, since it keeps connections to the Sentinels.
    client: Mutex<SentinelClient>,
    addresses: Vec<ConnectionInfo>,
    master: String,
    timeouts: Timeouts,
}

impl Sentinels {
    pub(super) fn new(
        sentinel: Sentinel,
        certificates: &Certificates,
        timeouts: Timeouts,
    ) -> Result<Sentinels, Error> {
        let Sentinel { sentinels: addresses, master, server, tls } = sentinel;
        let sentinels = addresses.iter().map(|info| info.addr().clone());
        let mut client = SentinelClientBuilder::new(sentinels, &master, SentinelServerType::Master)?
            .set_client_to_redis_protocol(ProtocolVersion::RESP3)
            .set_client_to_redis_tcp_settings(tcp_settings())
            .set_client_to_redis_db(server.db());
        if let Some(username) = server.username() {
            client = client.set_client_to_redis_username(username);
        }
        if let Some(password) = server.password() {
            client = client.set_client_to_redis_password(password);
        }
        // All are asked alike.
        let asking = addresses.first().map(ConnectionInfo::redis_settings);
        if let Some((user, password)) =
            asking.and_then(|asking| Some((asking.username()?, asking.password()?)))
        {
            client = client.set_client_to_sentinel_username(user).set_client_to_sentinel_password(password);
        }
        if let Some(mode) = tls {
            client = client.set_client_to_redis_tls_mode(mode);
        }
        let client = certificates.of_master(client).build()?;
        Ok(Sentinels { client: Mutex::new(client), addresses, master, timeouts })
    }

    /// Connects to the master.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let connected = self.client.lock().await.get_async_connection_with_config(config).await;
        match connected {
            // The client says that of a master that is down as well: during a failover it would be told to people, and not to
            // the circuit breaker.
            Err(error)
                if error.kind() == ErrorKind::MasterNameNotFoundBySentinel
                    && self.know_the_master().await =>
            {
                Err((
                    ErrorKind::Server(ServerErrorKind::MasterDown),
                    "the Sentinels see no master that is up",
                )
                    .into())
            }
            connected => connected,
        }
    }

    /// Whether one of them knows the name of the master, be that up or down.
    async fn know_the_master(&self) -> bool {
        for address in &self.addresses {
            if let Ok(Value::Array(_)) = self.ask(address).await {
                return true;
            }
        }
        false
    }

    async fn ask(&self, address: &ConnectionInfo) -> Result<Value, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeouts.connect))
            .set_response_timeout(Some(self.timeouts.response));
        let client = Client::open(address.clone())?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master).query_async(&mut connection).await
    }
}
