//! Where the counts are kept, as the command line says it: a store whose type is chosen at run time.

use std::convert::Infallible;
use std::time::Duration;

use tollgate::{BoxStore, MemoryStore, StoreExt};
use tollgate_redis::RedisStore;

use crate::cli::Cli;
use crate::outage::Outage;

/// A store of any type, which always has an answer.
pub(crate) type AnyStore = BoxStore<Infallible>;

/// `--store`, and what belongs to it.
#[derive(Debug)]
pub(crate) enum StoreSpec {
    Memory,
    Redis { url: String, prefix: Option<String>, secret: Option<String>, outage: Outage },
}

/// A connection is given at least this long to answer: it is given up because it hangs, not because callers are in a hurry.
const PATIENCE: Duration = Duration::from_secs(1);

impl StoreSpec {
    pub(crate) fn new(cli: &Cli) -> Result<StoreSpec, String> {
        if cli.store == "memory" {
            return Outage::none_said(cli).map(|()| StoreSpec::Memory);
        }
        let (url, prefix, secret) = (cli.store.clone(), cli.prefix.clone(), cli.secret.clone());
        Ok(StoreSpec::Redis { url, prefix, secret, outage: Outage::new(cli)? })
    }

    /// The store. A Redis that is down is no error: it is joined when it comes up.
    pub(crate) async fn open(&self) -> Result<AnyStore, String> {
        let StoreSpec::Redis { url, prefix, secret, outage } = self else {
            return Ok(MemoryStore::new().boxed());
        };
        let mut builder = RedisStore::builder(url).response_timeout(PATIENCE.max(outage.timeout));
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
        store.map(|store| outage.of(store)).map_err(|error| format!("{options}: {error}"))
    }

    /// Completes "counting in …", without a password.
    pub(crate) fn place(&self) -> String {
        match self {
            StoreSpec::Memory => "memory".to_owned(),
            StoreSpec::Redis { url, .. } => without_password(url),
        }
    }

    /// What happens to requests while the store fails, if it can.
    pub(crate) fn outage(&self) -> Option<String> {
        match self {
            StoreSpec::Memory => None,
            StoreSpec::Redis { outage, .. } => Some(outage.in_words()),
        }
    }
}

/// A URL without user and password, which stand before the host, or among the parameters of a socket's. Of one in which they
/// may stand anywhere, the scheme.
fn without_password(url: &str) -> String {
    let (place, parameters) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    match (place.split_once("://"), place.rsplit_once('@')) {
        (Some((scheme, _)), _) if parameters.contains('@') => format!("{scheme}://"),
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => place.to_owned(),
    }
}
