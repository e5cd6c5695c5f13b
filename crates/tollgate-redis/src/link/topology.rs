//! Parses the URL of a Redis.

use std::sync::Arc;

use bb8_redis::redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::tls::Certificates;
use crate::error::Error;

pub(crate) enum Topology {
    Server(ConnectionInfo),
    Sentinel(SentinelTopology),
    Cluster(ClusterTopology),
}

/// Sentinels, and the master that they name.
pub(crate) struct SentinelTopology {
    pub(crate) sentinels: Vec<ConnectionInfo>,
    pub(crate) master: String,
    /// The settings for connections to the master. Its address is replaced.
    pub(crate) server: ConnectionInfo,
}

/// Nodes of a Cluster, and where the addresses that they announce are reached.
pub(crate) struct ClusterTopology {
    pub(crate) nodes: Vec<ConnectionInfo>,
    pub(crate) addresses: NodeAddresses,
}

/// Where a node of a Cluster is reached, from the address that it announces.
#[derive(Clone)]
pub(crate) struct NodeAddresses(Arc<Reached>);

/// From host and port to host and port.
type Reached = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl NodeAddresses {
    pub(crate) fn new(reached: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> NodeAddresses {
        NodeAddresses(Arc::new(reached))
    }

    pub(super) fn reached(&self, host: &str, port: u16) -> (String, u16) {
        (self.0)(host, port)
    }
}

/// As announced.
impl Default for NodeAddresses {
    fn default() -> NodeAddresses {
        NodeAddresses::new(|host, port| (host.to_owned(), port))
    }
}

impl Topology {
    /// Parses `redis[s]://…`, `redis[s]-sentinel://[user:password@]host:port,host:port/master[/db]`
    /// and `redis[s]-cluster://[user:password@]host:port,host:port`. User and password are those of
    /// the servers, not those of the Sentinels.
    pub(crate) fn parse(url: &str, certificates: &Certificates) -> Result<Topology, Error> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            Error::config(
                "not a URL of redis: it must begin with redis://, redis-sentinel:// or redis-cluster://",
            )
        })?;
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix" => {
                Ok(Topology::Server(server(url, certificates)?))
            }
            "redis-sentinel" | "valkey-sentinel" => sentinel("redis", rest, certificates),
            "rediss-sentinel" | "valkeys-sentinel" => sentinel("rediss", rest, certificates),
            "redis-cluster" | "valkey-cluster" => cluster("redis", rest, certificates),
            "rediss-cluster" | "valkeys-cluster" => cluster("rediss", rest, certificates),
            _ => Err(Error::config(format!(
                "{scheme:?} is no scheme of redis: use redis, redis-sentinel or redis-cluster, or rediss with TLS"
            ))),
        }
    }
}

impl Topology {
    /// Sets user and password of the Sentinels. Without this, they are asked as the default user.
    pub(crate) fn set_sentinel_credentials(&mut self, user: &str, password: &str) -> Result<(), Error> {
        let Topology::Sentinel(sentinel) = self else {
            return Err(Error::config("sentinel_credentials needs a redis-sentinel:// URL"));
        };
        let settings = RedisConnectionInfo::default().set_username(user).set_password(password);
        for info in &mut sentinel.sentinels {
            *info = info.clone().set_redis_settings(settings.clone());
        }
        Ok(())
    }

    /// Sets where the nodes of a Cluster are reached.
    pub(crate) fn set_node_addresses(&mut self, addresses: NodeAddresses) -> Result<(), Error> {
        let Topology::Cluster(cluster) = self else {
            return Err(Error::config("node_addresses needs a redis-cluster:// URL"));
        };
        cluster.addresses = addresses;
        Ok(())
    }
}

/// Ends errors about what follows the hosts. That text is not repeated: if a password is not
/// percent-encoded, it is part of the password.
const ENCODING_HINT: &str = " (percent-encode the password: %2F, %3F and %23 for /, ? and #)";

fn server(url: &str, certificates: &Certificates) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|error| {
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        Error::config(format!("not a URL of redis{detail}"))
    })?;
    if !info.addr().is_supported() {
        return Err(Error::config("a rediss:// URL needs the feature `tls` of tollgate-redis"));
    }
    let mut info = certificates.of_server(info)?;
    // The `redis` crate's default is RESP2. RESP3 reports that a connection has ended.
    let has_query = |query: &str| url.split_once('?').is_some_and(|(_, all)| all.contains(query));
    if !has_query("protocol=") {
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        info = info.set_redis_settings(settings);
    }
    Ok(info)
}

/// Splits a list of nodes into their URLs, all with the same user and password, and what follows
/// the list.
fn nodes<'a>(scheme: &str, port: u16, rest: &'a str) -> (Vec<String>, &'a str) {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
        None => (String::new(), authority),
    };
    let url = |host: &str| {
        let host = host.trim();
        // A colon inside the brackets of an IPv6 address is no port.
        let has_port = host.rsplit_once(']').map_or(host, |(_, after)| after).contains(':');
        let port = if has_port { String::new() } else { format!(":{port}") };
        format!("{scheme}://{credentials}{host}{port}/")
    };
    (hosts.split(',').map(url).collect(), path)
}

fn sentinel(scheme: &str, rest: &str, certificates: &Certificates) -> Result<Topology, Error> {
    let (urls, path) = nodes(scheme, 26_379, rest);
    if path.contains(['?', '#']) {
        return Err(Error::config(format!(
            "only the number of a database may follow the master in a URL of Sentinels{ENCODING_HINT}"
        )));
    }
    let mut path = path.trim_matches('/').splitn(2, '/');
    let master = path.next().filter(|master| !master.is_empty()).ok_or_else(|| {
        Error::config("a URL of Sentinels must name the master: redis-sentinel://host:26379/master")
    })?;
    let infos = urls.iter().map(|url| server(url, certificates)).collect::<Result<Vec<_>, _>>()?;
    let mut settings = infos[0].redis_settings().clone();
    if let Some(db) = path.next() {
        let db = db.parse().map_err(|_| {
            Error::config(format!("what follows the master must be the number of a database{ENCODING_HINT}"))
        })?;
        settings = settings.set_db(db);
    }
    let server = infos[0].clone().set_redis_settings(settings);
    let bare = |info: ConnectionInfo| info.set_redis_settings(RedisConnectionInfo::default());
    let sentinels = infos.into_iter().map(bare).collect();
    Ok(Topology::Sentinel(SentinelTopology { sentinels, master: master.to_owned(), server }))
}

fn cluster(scheme: &str, rest: &str, certificates: &Certificates) -> Result<Topology, Error> {
    let (urls, path) = nodes(scheme, 6_379, rest);
    if !path.trim_matches('/').is_empty() {
        return Err(Error::config(format!(
            "a cluster has no databases, so nothing may follow its nodes{ENCODING_HINT}"
        )));
    }
    let nodes = urls.iter().map(|url| server(url, certificates)).collect::<Result<_, _>>()?;
    Ok(Topology::Cluster(ClusterTopology { nodes, addresses: NodeAddresses::default() }))
}

#[cfg(test)]
mod tests {
    use tollgate_core::StoreError;

    use super::*;

    fn parse(url: &str) -> Result<Topology, Error> {
        Topology::parse(url, &Certificates::default())
    }

    fn addresses(infos: &[ConnectionInfo]) -> Vec<String> {
        infos.iter().map(|info| info.addr().to_string()).collect()
    }

    #[test]
    fn urls_of_a_server_sentinels_and_a_cluster_are_parsed() {
        assert!(matches!(parse("redis://127.0.0.1/"), Ok(Topology::Server(_))));
        let Ok(Topology::Sentinel(sentinel)) = parse("redis-sentinel://ada:pw@a,b:7,[::1]/main/3") else {
            panic!("not Sentinels");
        };
        assert_eq!(addresses(&sentinel.sentinels), ["a:26379", "b:7", "::1:26379"]);
        assert_eq!(sentinel.master, "main");
        let settings = sentinel.server.redis_settings();
        assert_eq!((settings.username(), settings.db()), (Some("ada"), 3));
        assert!(sentinel.sentinels.iter().all(|info| info.redis_settings().password().is_none()));
        let Ok(Topology::Cluster(ClusterTopology { nodes, .. })) = parse("redis-cluster://:pw@a,b:7") else {
            panic!("not a cluster");
        };
        assert_eq!(addresses(&nodes), ["a:6379", "b:7"]);
        assert!(nodes.iter().all(|info| info.redis_settings().password() == Some("pw")));
    }

    #[test]
    fn url_errors_do_not_repeat_the_password() {
        for url in [
            "redis-cluster://:hun/ter2@127.0.0.1",
            "redis-cluster://:hun#ter2@127.0.0.1",
            "redis-sentinel://ada:12/hun/ter2@127.0.0.1/main",
            "redis://:hun/ter2@127.0.0.1/",
        ] {
            let Err(error) = parse(url) else { panic!("{url:?} was accepted") };
            let text = error.to_string();
            assert!(!text.contains("hun") && !text.contains("ter2"), "{text}");
        }
    }

    #[test]
    fn malformed_urls_are_configuration_errors() {
        for url in [
            "",
            "127.0.0.1:6379",
            "http://127.0.0.1/",
            "redis://",
            "redis://host:port/",
            "redis://127.0.0.1/x",
            "redis-sentinel://127.0.0.1:26379",
            "redis-sentinel://127.0.0.1:26379/main/x",
            "redis-sentinel://127.0.0.1:26379/main?db=2",
            "rediss-sentinel://127.0.0.1:26379/main#insecure",
            "redis-cluster://127.0.0.1/3",
            "redis-cluster://,",
        ] {
            let Err(error) = parse(url) else { panic!("{url:?} was accepted") };
            assert!(error.is_configuration() && !error.is_transient(), "{url:?}: {error}");
        }
    }
}
