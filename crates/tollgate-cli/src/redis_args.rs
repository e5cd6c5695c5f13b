//! Which Redis to connect to, for all commands.

use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate_redis::{RedisStore, RedisStoreBuilder};

use crate::values;

pub(crate) const REDIS_HELP: &str = "\
A Redis or Valkey

HOST[:PORT]
redis://[USER:PW@]HOST[:PORT][/DB]    rediss with TLS
redis-sentinel://HOST,.../MASTER      the master that these Sentinels name
redis-cluster://HOST,...              a Cluster";

/// The prefix of key names that services have by default.
pub(crate) const PREFIX: &str = "tollgate";

/// The largest `--concurrency`.
const MOST_WAITING: usize = 100_000;

/// Options of the connection to a Redis.
#[derive(Debug, Args)]
pub(crate) struct RedisArgs {
    #[arg(long, alias = "url", value_name = "REDIS", help = REDIS_HELP)]
    pub(crate) redis: Option<String>,

    /// The user of the Redis
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// The password of the Redis
    #[arg(long, value_name = "PASSWORD", env = "TOLLGATE_PASSWORD", hide_env_values = true)]
    password: Option<String>,

    /// The prefix of key names in the Redis
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,

    /// The secret under which the store hides keys: see RedisStore::builder
    #[arg(long, value_name = "SECRET", env = "TOLLGATE_SECRET", hide_env_values = true)]
    secret: Option<String>,

    /// How long a response may take; after that the request has failed
    #[arg(long, value_name = "D", default_value = "10s", env = "TOLLGATE_TIMEOUT", value_parser = values::time)]
    pub(crate) timeout: Duration,
}

impl RedisArgs {
    /// Opens the store. If the Redis is down, this succeeds, and requests fail.
    pub(crate) async fn connect(&self, prefix: &str) -> Result<RedisStore, String> {
        let builder = self.builder()?.prefix(self.prefix.as_deref().unwrap_or(prefix));
        // The error repeats neither the URL, which may hold a password, nor the secret.
        builder.connect().await.map_err(|error| format!("--redis: {error}"))
    }

    pub(crate) fn builder(&self) -> Result<RedisStoreBuilder, String> {
        let builder = RedisStore::builder(&self.url()?);
        let builder = builder.response_timeout(self.timeout).most_waiting(MOST_WAITING);
        Ok(match &self.secret {
            Some(secret) => builder.secret(secret),
            None => builder,
        })
    }

    /// Returns the URL with user and password.
    fn url(&self) -> Result<String, String> {
        let redis = self.redis.as_deref().unwrap_or("127.0.0.1");
        let (scheme, rest) = redis.split_once("://").unwrap_or(("redis", redis));
        if self.user.is_none() && self.password.is_none() {
            return Ok(format!("{scheme}://{rest}"));
        }
        if rest.contains('@') {
            return Err(
                "--redis: the URL has a user or a password, so --user and --password have no meaning"
                    .to_owned(),
            );
        }
        let encoded = |text: &Option<String>| {
            utf8_percent_encode(text.as_deref().unwrap_or_default(), NON_ALPHANUMERIC).to_string()
        };
        Ok(format!("{scheme}://{}:{}@{rest}", encoded(&self.user), encoded(&self.password)))
    }
}
