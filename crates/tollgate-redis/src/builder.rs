//! What can be chosen about a store in Redis.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate_core::Clock;

use crate::commit::{Commit, Target};
use crate::error::Error;
use crate::link::tls::Certificates;
use crate::link::topology::Topology;
use crate::link::{Link, Timeouts};
use crate::store::RedisStore;
use crate::trial;
use crate::wire::layout::SlidingLogLayout;
use crate::wire::names::Names;
use crate::wire::script::Scripts;

/// A [`RedisStore`] that is being put together.
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
    clock: Option<Clock>,
    certificates: Certificates,
    sentinel_credentials: Option<(String, String)>,
}

impl RedisStore {
    /// Connects to the Redis of a URL with the default settings: short for [`RedisStore::builder`] and
    /// [`RedisStoreBuilder::connect`].
    ///
    /// | URL | connects to |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | a server; `unix:///path` to its socket |
    /// | `redis-sentinel://[user:password@]host[:port],…/master[/db]` | the master that these Sentinels name |
    /// | `redis-cluster://[user:password@]host[:port],…` | the Cluster of these nodes |
    ///
    /// With the feature `tls`, `rediss` instead of `redis` connects by TLS. User and password are those of the servers; those
    /// of Sentinels are set by [`RedisStoreBuilder::sentinel_credentials`].
    ///
    /// # Errors
    /// Those of [`RedisStoreBuilder::connect`]. A Redis that cannot be reached is not an error.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<RedisStore, Error> {
        RedisStore::builder(url).connect().await
    }

    /// Builds a store for the Redis of a URL.
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
            clock: None,
            certificates: Certificates::default(),
            sentinel_credentials: None,
        }
    }

    /// What all keys begin with: `tollgate` unless said. Services that share a Redis and not their limits take one each.
    pub fn prefix(mut self, prefix: impl Into<String>) -> RedisStoreBuilder {
        self.prefix = prefix.into();
        self
    }

    /// Names keys by a digest under this secret (HMAC-SHA-256), so that no address, no user id and no API key rests in
    /// Redis. All processes that share limits need the same.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> RedisStoreBuilder {
        self.secret = Some(secret.as_ref().into());
        self
    }

    /// How many connections to a server carry checks at most, each with one call under way: 4 unless said. A call carries up to
    /// 128 requests that differ, so that few are enough. Refunds and resets have one more where these are busy. Of no effect in a
    /// Cluster, where there is one connection to each node.
    pub fn connections(mut self, connections: u32) -> RedisStoreBuilder {
        self.connections = connections;
        self
    }

    /// How long connecting may take: a second unless said.
    pub fn connect_timeout(mut self, timeout: Duration) -> RedisStoreBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// How long an answer may take: a second unless said. What callers wait for is bounded apart, by a timeout around the
    /// store; this one finds out connections that are of no use any more.
    pub fn response_timeout(mut self, timeout: Duration) -> RedisStoreBuilder {
        self.response_timeout = timeout;
        self
    }

    /// How many requests may wait for their call to be sent at most, in all: 16,384 unless said. To more than that the store
    /// answers an error that [is_overloaded](Error::is_overloaded), about which the failure policy decides as about any, so that a
    /// Redis that hangs does not fill the memory of its clients.
    /// Those whose call is under way have made room: as many again at most for each connection, or in a Cluster for each slot.
    pub fn most_waiting(mut self, requests: usize) -> RedisStoreBuilder {
        self.most_waiting = requests;
        self
    }

    /// How sliding logs are laid out: a [`SlidingLogLayout::List`] unless said. All processes that share limits need the same; a
    /// log of another layout begins anew.
    pub fn sliding_log(mut self, layout: SlidingLogLayout) -> RedisStoreBuilder {
        self.log = layout;
        self
    }

    /// The user and the password that Sentinels want: those of the URL are of the servers that they name. Where they have a
    /// password and no users (`requirepass`), the user is `default`.
    pub fn sentinel_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> RedisStoreBuilder {
        self.sentinel_credentials = Some((user.into(), password.into()));
        self
    }

    /// Trusts servers with a certificate that one of these has signed, and no others, instead of those that the system trusts:
    /// PEM, with one or more. For a Redis whose certificate comes from an authority of your own.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> RedisStoreBuilder {
        self.certificates.roots = Some(pem.into());
        self
    }

    /// Says who it is by this certificate (PEM, with those between it and its authority behind it) and its key (PEM): for a
    /// server that asks for one (`tls-auth-clients`).
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> RedisStoreBuilder {
        self.certificates.client = Some((certificate.into(), key.into()));
        self
    }

    /// Goes by this clock instead of the server's, for tests. Keys then live an hour longer than they need to, since Redis
    /// lets them expire by its own.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: impl Into<Clock>) -> RedisStoreBuilder {
        self.clock = Some(clock.into());
        self
    }

    /// Tries once to connect. A Redis that cannot be reached is no error: the store then answers with errors until it can,
    /// and a service starts while its Redis is down.
    ///
    /// # Errors
    /// An [`Error`] that [is_configuration](Error::is_configuration), for what will not pass by itself: a URL, a prefix or a
    /// number that cannot be, a password or a user that Redis refuses, a missing permission for what buckets need (whether or not any
    /// rule is a bucket; what only other algorithms need is missed by their first requests), a master that the Sentinels do not know, a
    /// node of a cluster that is addressed as a server of its own, a certificate that is none or that is not trusted.
    ///
    /// # Panics
    /// Outside of a tokio runtime. The store's calls run in the one where it was connected.
    pub async fn connect(self) -> Result<RedisStore, Error> {
        self.validate()?;
        let timeouts = Timeouts { connect: self.connect_timeout, response: self.response_timeout };
        let mut topology = Topology::parse(&self.url, &self.certificates)?;
        if let Some((user, password)) = &self.sentinel_credentials {
            topology.set_sentinel_credentials(user, password)?;
        }
        let target = Target {
            link: Link::new(topology, &self.prefix, self.connections, timeouts),
            names: Names::new(&self.prefix, self.secret.as_deref(), self.log),
            scripts: Scripts::new(self.clock.is_some()),
            clock: self.clock,
            waits: Clock::system(),
            runtime: Handle::current(),
        };
        let lanes = usize::try_from(self.connections).unwrap_or(usize::MAX);
        let store = RedisStore::new(Commit::new(target, lanes, self.most_waiting));
        trial::run(&store).await?;
        Ok(store)
    }

    fn validate(&self) -> Result<(), Error> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.prefix.is_empty() || !self.prefix.bytes().all(plain) {
            return Err(Error::config("a prefix is graphic ASCII without braces, and not empty"));
        }
        if self.secret.as_ref().is_some_and(|secret| secret.is_empty()) {
            return Err(Error::config("an empty secret hides nothing"));
        }
        if self.connections == 0 || self.most_waiting == 0 {
            return Err(Error::config(
                "without a connection, and without a place to wait, nothing is decided",
            ));
        }
        if self.connect_timeout.is_zero() || self.response_timeout.is_zero() {
            return Err(Error::config("a timeout of zero lets nothing succeed"));
        }
        self.certificates.validate()
    }
}

/// Without the URL, which may hold a password, and without the secret and the key.
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
