//! The store from the command line: its type is chosen at run time.

use std::convert::Infallible;
use std::time::Duration;

use tollgate::metrics::StoreMetrics;
use tollgate::store::BoxStore;
use tollgate::{MemoryStore, StoreExt};
use tollgate_redis::RedisStore;

use crate::cli::Cli;
use crate::outage::{Outage, Views};

/// A store of any type that always answers.
pub(crate) type AnyStore = BoxStore<Infallible>;

/// `--store` and the options that need it.
#[derive(Debug)]
pub(crate) enum StoreSpec {
    Memory { max_keys: Option<usize> },
    Redis { url: String, prefix: Option<String>, secret: Option<String>, outage: Box<Outage> },
}

/// The minimum response timeout of a connection. A short timeout of callers is no reason to replace
/// a connection.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

impl StoreSpec {
    pub(crate) fn new(cli: &Cli) -> Result<StoreSpec, String> {
        if cli.max_keys == Some(0) {
            return Err("--max-keys must be at least 1, got 0".to_owned());
        }
        if cli.store == "memory" {
            return Outage::none_given(cli).map(|()| StoreSpec::Memory { max_keys: cli.max_keys });
        }
        if cli.max_keys.is_some() {
            return Err("--max-keys needs --store memory".to_owned());
        }
        let (url, prefix, secret) = (cli.store.clone(), cli.prefix.clone(), cli.secret.clone());
        Ok(StoreSpec::Redis { url, prefix, secret, outage: Box::new(Outage::new(cli)?) })
    }

    /// Opens the store. If Redis is down, this succeeds, and the store connects later.
    ///
    /// The second value shows what the store and its wrappers know.
    pub(crate) async fn open(&self) -> Result<(AnyStore, Views), String> {
        let (url, prefix, secret, outage) = match self {
            StoreSpec::Redis { url, prefix, secret, outage } => (url, prefix, secret, outage),
            StoreSpec::Memory { max_keys } => {
                let builder = MemoryStore::builder();
                let builder = match max_keys {
                    Some(max_keys) => builder.max_keys(*max_keys),
                    None => builder,
                };
                let store = builder.build();
                let metrics = StoreMetrics::new().memory(&store);
                return Ok((store.boxed(), Views { metrics, circuit: None, give_back: None }));
            }
        };
        let mut builder = RedisStore::builder(url).response_timeout(MIN_RESPONSE_TIMEOUT.max(outage.timeout));
        let mut options = "--store".to_owned();
        if let Some(prefix) = prefix {
            builder = builder.prefix(prefix);
            options.push_str(", --prefix");
        }
        if let Some(secret) = secret {
            builder = builder.secret(secret);
            options.push_str(", --secret");
        }
        let store = builder.connect().await;
        // The error repeats neither the URL, which may hold a password, nor the secret.
        store.map(|store| outage.wrap(store)).map_err(|error| format!("{options}: {error}"))
    }

    /// Completes "with its limits in …", without a password.
    pub(crate) fn place(&self) -> String {
        match self {
            StoreSpec::Memory { .. } => "memory".to_owned(),
            StoreSpec::Redis { url, .. } => without_password(url),
        }
    }

    /// Describes what happens to requests while the store fails, if it can fail.
    pub(crate) fn outage(&self) -> Option<String> {
        match self {
            StoreSpec::Memory { .. } => None,
            StoreSpec::Redis { outage, .. } => Some(outage.in_words()),
        }
    }
}

/// Removes user and password from a URL. They are before the host, or in the parameters of a
/// socket's URL. If they can be anywhere, only the scheme remains.
fn without_password(url: &str) -> String {
    let (place, parameters) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    match (place.split_once("://"), place.rsplit_once('@')) {
        (Some((scheme, _)), _) if parameters.contains('@') => format!("{scheme}://"),
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => place.to_owned(),
    }
}
