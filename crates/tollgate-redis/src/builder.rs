//! The settings of a store in Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tollgate_core::Clock;

use crate::commit::{CallContext, Commit, ServerClocks};
use crate::error::Error;
use crate::link::tls::Certificates;
use crate::link::topology::{NodeAddresses, Topology};
use crate::link::{Connecting, Credentials, CredentialsSource, Link, QUESTIONS, Timeouts};
use crate::startup_check;
use crate::store::RedisStore;
use crate::wire::layout::SlidingLogLayout;
use crate::wire::names::KeyNames;
use crate::wire::numbers::life_in_millis;
use crate::wire::script::Scripts;

/// Builds a [`RedisStore`]. See [`RedisStore::builder`].
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    prefix: String,
    secret: Option<Box<[u8]>>,
    connections: u32,
    connect_timeout: Duration,
    response_timeout: Duration,
    most_waiting: usize,
    log: SlidingLogLayout,
    usage_life: Duration,
    clock: Option<Clock>,
    certificates: Certificates,
    sentinel_credentials: Option<(String, String)>,
    credentials: Option<Arc<CredentialsSource>>,
    node_addresses: Option<NodeAddresses>,
}

impl RedisStore {
    /// Connects to the Redis of a URL with the default settings.
    ///
    /// Short for [`RedisStore::builder`] and [`RedisStoreBuilder::connect`].
    ///
    /// | URL | connects to |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | a server |
    /// | `unix:///path` | a server, by its socket |
    /// | `redis-sentinel://[user:password@]host[:port],…/master[/db]` | the master that these Sentinels name |
    /// | `redis-cluster://[user:password@]host[:port],…` | the Cluster of these nodes |
    ///
    /// A server that divides keys into hash slots behind one address is a Cluster of one node, if
    /// it [names no nodes](crate#in-a-cluster): Redis Enterprise, Azure Managed Redis.
    ///
    /// With the feature `tls`, `rediss` instead of `redis` connects with TLS. User and password are
    /// those of the servers. Set those of Sentinels with
    /// [`RedisStoreBuilder::sentinel_credentials`]. `?protocol=resp2` behind the URL of a server
    /// selects RESP2.
    ///
    /// # Errors
    /// Those of [`RedisStoreBuilder::connect`]. If Redis cannot be reached, that is not an error.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<RedisStore, Error> {
        RedisStore::builder(url).connect().await
    }

    /// Returns a builder of a store for the Redis of a URL. See [`RedisStore::connect`] for URLs.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder {
            url: url.to_owned(),
            prefix: "tollgate".to_owned(),
            secret: None,
            connections: 4,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            most_waiting: 16_384,
            log: SlidingLogLayout::default(),
            usage_life: Duration::from_secs(30 * 24 * 3_600),
            clock: None,
            certificates: Certificates::default(),
            sentinel_credentials: None,
            credentials: None,
            node_addresses: None,
        }
    }

    /// Sets the prefix of all keys. Default: `tollgate`.
    ///
    /// Services that share a Redis but not their limits take different prefixes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> RedisStoreBuilder {
        self.prefix = prefix.into();
        self
    }

    /// Names keys by a digest with this secret (HMAC-SHA-256).
    ///
    /// Redis then stores no address, no user ID and no API key. All processes that share limits
    /// need the same secret.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> RedisStoreBuilder {
        self.secret = Some(secret.as_ref().into());
        self
    }

    /// Sets how many connections to a server carry checks at most. Default: 4.
    ///
    /// Each has one call in flight, which carries up to 128 different requests, so few are enough.
    /// Refunds and resets have one connection more, and so have releases of slots, renewals and
    /// rules in shadow. Questions about usage have up to four. In a Cluster this has no effect:
    /// each node has one connection.
    pub fn connections(mut self, connections: u32) -> RedisStoreBuilder {
        self.connections = connections;
        self
    }

    /// Sets how long connecting may take. Default: 1 second.
    pub fn connect_timeout(mut self, timeout: Duration) -> RedisStoreBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long an answer may take. Default: 1 second.
    ///
    /// This finds connections that no longer work. To bound how long callers wait, put a timeout
    /// around the store. Without one, checks and refunds in another runtime than the one that
    /// connects wait for at most twice the sum of both timeouts, since that runtime may not be
    /// driven any more. Questions about usage, and jobs, need it to be driven.
    pub fn response_timeout(mut self, timeout: Duration) -> RedisStoreBuilder {
        self.response_timeout = timeout;
        self
    }

    /// Sets how many requests may be queued in all. Default: 16,384.
    ///
    /// So a Redis that hangs does not fill the memory of its clients. Further requests fail with an
    /// error that [is_overloaded](Error::is_overloaded), and the failure policy decides them.
    /// Requests whose call is in flight are no longer queued: at most as many again for each
    /// connection, or in a Cluster for each hash slot. Checks, rules in shadow, refunds with
    /// resets, releases and renewals are counted apart: so many of each. A request carries up to a
    /// hundred renewals.
    ///
    /// It also bounds the claims of [slots](tollgate_core::Policy::in_flight) that were sent and
    /// not answered. Further claims fail with the same error.
    pub fn most_waiting(mut self, requests: usize) -> RedisStoreBuilder {
        self.most_waiting = requests;
        self
    }

    /// Sets how sliding logs are stored. Default: [`SlidingLogLayout::List`].
    ///
    /// All processes that share limits need the same layout. A change starts each log empty.
    pub fn sliding_log(mut self, layout: SlidingLogLayout) -> RedisStoreBuilder {
        self.log = layout;
        self
    }

    /// Sets how long the usage of a key is kept after its last use, for policies that [track
    /// usage](tollgate_core::Policy::track_usage). Default: 30 days.
    ///
    /// This bounds the memory: Redis holds the keys that were granted something in this time, at
    /// about 200 bytes each. At most a hundred years.
    pub fn keep_usage_for(mut self, time: Duration) -> RedisStoreBuilder {
        self.usage_life = time;
        self
    }

    /// Sets the user and the password of the Sentinels. Those of the URL are for the servers.
    ///
    /// If the Sentinels have a password but no users (`requirepass`), the user is `default`.
    pub fn sentinel_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> RedisStoreBuilder {
        self.sentinel_credentials = Some((user.into(), password.into()));
        self
    }

    /// Sets where the nodes of a Cluster are reached, from the host and port that each announces.
    ///
    /// For nodes behind NAT, in containers or behind a tunnel, which announce inner addresses. The
    /// nodes in the URL are reached as the URL says. With a URL of another kind,
    /// [`connect`](RedisStoreBuilder::connect) fails.
    ///
    /// ```no_run
    /// use tollgate_redis::RedisStore;
    ///
    /// # async fn example() -> Result<(), tollgate_redis::Error> {
    /// // Containers whose ports 7001 to 7006 are published.
    /// let store = RedisStore::builder("redis-cluster://127.0.0.1:7001")
    ///     .node_addresses(|_host, port| ("127.0.0.1".to_owned(), port))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn node_addresses(
        mut self,
        reached: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> RedisStoreBuilder {
        self.node_addresses = Some(NodeAddresses::new(reached));
        self
    }

    /// Takes user and password from a source instead of the URL, for passwords that change while
    /// the store runs: tokens of ElastiCache, Azure or Google Cloud, and secrets that are rotated.
    ///
    /// `source` is asked before each connection, to servers, nodes of a Cluster and the master that
    /// Sentinels name. A token that it says is [valid for](Credentials::valid_for) a time is kept
    /// until the last fifth of that time. Connections then authenticate again, before their next
    /// call. If a server refuses the password, the source is asked once more. If it refuses that
    /// too, the [failure policy](https://docs.rs/tollgate/latest/tollgate/failure/) decides until
    /// the next attempt to connect.
    ///
    /// An error of the source counts as an outage of Redis, unless its last token is valid still,
    /// and its text is in the error of the store: it should contain no secret. Connections ask one
    /// after another, and a source that takes longer than the [connect
    /// timeout](RedisStoreBuilder::connect_timeout) fails. So a source that asks over a network
    /// should say how long its answer is valid. Sentinels have [credentials of their
    /// own](RedisStoreBuilder::sentinel_credentials).
    ///
    /// A file that a secret store rewrites:
    ///
    /// ```no_run
    /// use tollgate_redis::{Credentials, RedisStore};
    ///
    /// # async fn example() -> Result<(), tollgate_redis::Error> {
    /// let store = RedisStore::builder("rediss://cache.example:6379")
    ///     .credentials(async || {
    ///         let password = std::fs::read_to_string("/run/secrets/redis-password")?;
    ///         Ok::<_, std::io::Error>(Credentials::new("tollgate", password.trim_end()))
    ///     })
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// | service | user | password | valid for |
    /// |---|---|---|---|
    /// | [ElastiCache with IAM](https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth-iam.html) | the user's id | a presigned `connect` request of SigV4, without `http://` | not needed: a token counts at the login only, and AWS closes connections after 12 hours. Sign one for each connection |
    /// | [Azure Managed Redis with Entra ID](https://learn.microsoft.com/en-us/azure/redis/entra-for-authentication) | the object id of the identity | an access token of the scope `https://redis.azure.com/.default` | the rest of the token's life, about an hour |
    /// | [Memorystore with IAM](https://cloud.google.com/memorystore/docs/cluster/about-iam-auth) | `default` | an OAuth access token of the service account | the rest of the token's life, about an hour |
    pub fn credentials<F, A, E>(mut self, source: F) -> RedisStoreBuilder
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.credentials = Some(Arc::new(CredentialsSource::new(source)));
        self
    }

    /// Trusts only servers whose certificate is signed by one of these root certificates (PEM).
    ///
    /// The roots that the system trusts are then not used. For a Redis whose certificate comes from
    /// your own authority.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> RedisStoreBuilder {
        self.certificates.roots = Some(pem.into());
        self
    }

    /// Presents this client certificate and its key to servers that ask for one
    /// (`tls-auth-clients`).
    ///
    /// Both are PEM. Intermediate certificates follow the client's own.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> RedisStoreBuilder {
        self.certificates.client = Some((certificate.into(), key.into()));
        self
    }

    /// Uses this clock instead of the server's, for tests.
    ///
    /// Keys then live an hour longer than they need to, since Redis expires them by its own clock.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: impl Into<Clock>) -> RedisStoreBuilder {
        self.clock = Some(clock.into());
        self
    }

    /// Tries once to connect, and returns the store.
    ///
    /// If Redis cannot be reached, that is not an error: the service starts, and checks fail until
    /// the store has connected. The store's calls run in the runtime in which it was connected.
    ///
    /// # Errors
    /// Fails with an [`Error`] that [is_configuration](Error::is_configuration), for what a retry
    /// cannot fix:
    ///
    /// - an invalid URL, prefix, number or certificate;
    /// - a user or password that Redis refuses, or a certificate that is not trusted;
    /// - a missing permission for a command that buckets need, even if no rule is a bucket.
    ///   Permissions that only other algorithms need are missed by their first requests;
    /// - a master that the Sentinels do not know;
    /// - a node of a Cluster, or a Sentinel, whose URL says that it is a server;
    /// - a node of a Cluster that cannot be reached at the address that it announces: see
    ///   [`RedisStoreBuilder::node_addresses`];
    /// - a proxy that spreads keys over several servers.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub async fn connect(self) -> Result<RedisStore, Error> {
        self.validate()?;
        let timeouts = Timeouts { connect: self.connect_timeout, response: self.response_timeout };
        let mut topology = Topology::parse(&self.url, &self.certificates)?;
        if let Some((user, password)) = &self.sentinel_credentials {
            topology.set_sentinel_credentials(user, password)?;
        }
        if let Some(addresses) = self.node_addresses {
            topology.set_node_addresses(addresses)?;
        }
        let connecting = Connecting { timeouts, credentials: self.credentials };
        let context = CallContext {
            link: Arc::new(Link::new(topology, &self.prefix, self.connections, connecting)),
            names: KeyNames::new(&self.prefix, self.secret.as_deref(), self.log),
            scripts: Arc::new(Scripts::new(self.clock.is_some())),
            usage_life_ms: life_in_millis(self.usage_life),
            clock: self.clock,
            waits: Clock::system(),
            questions: Arc::new(Semaphore::new(QUESTIONS as usize)),
            longest_turn: self.response_timeout,
            runtime: Handle::current(),
            longest_wait_elsewhere: self
                .connect_timeout
                .saturating_add(self.response_timeout)
                .saturating_mul(2),
            clocks: ServerClocks::default(),
        };
        let lanes = usize::try_from(self.connections).unwrap_or(usize::MAX);
        let store = RedisStore::new(Commit::new(context, lanes, self.most_waiting));
        let eviction = startup_check::run(&store).await?;
        Ok(store.warning_of(eviction))
    }

    fn validate(&self) -> Result<(), Error> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.prefix.is_empty() || !self.prefix.bytes().all(plain) {
            let prefix = &self.prefix;
            return Err(Error::config(format!(
                "prefix must be graphic ASCII without braces and not empty, got {prefix:?}"
            )));
        }
        if self.secret.as_ref().is_some_and(|secret| secret.is_empty()) {
            return Err(Error::config("secret must not be empty"));
        }
        if self.connections == 0 || self.most_waiting == 0 {
            return Err(Error::config("connections and most_waiting must be at least 1"));
        }
        if self.connect_timeout.is_zero() || self.response_timeout.is_zero() {
            return Err(Error::config("timeouts must be longer than zero"));
        }
        if self.usage_life.is_zero() {
            return Err(Error::config("keep_usage_for must be longer than zero"));
        }
        self.certificates.validate()
    }
}

/// Omits the URL, which may contain a password, and also the secret and the key.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("most_waiting", &self.most_waiting)
            .field("sliding_log", &self.log)
            .finish_non_exhaustive()
    }
}
