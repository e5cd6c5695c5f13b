//! The store from the command line: its type is chosen at run time.

use std::convert::Infallible;
use std::fs;
use std::future::ready;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use tollgate::jobs::{JobPolicy, Jobs, MemoryJobs};
use tollgate::metrics::StoreMetrics;
use tollgate::store::BoxStore;
use tollgate::{MemoryStore, StoreExt};
use tollgate_redis::{Credentials, RedisStore};

use crate::cli::Cli;
use crate::jobs::routes;
use crate::outage::{Outage, Views};

/// A store of any type that always answers.
pub(crate) type AnyStore = BoxStore<Infallible>;

/// `--store` and the options that need it.
#[derive(Debug)]
pub(crate) enum StoreSpec {
    Memory { max_keys: Option<usize> },
    Redis(Box<RedisSpec>),
}

/// What `--store` and its options say of a Redis.
#[derive(Debug)]
pub(crate) struct RedisSpec {
    url: String,
    prefix: Option<String>,
    secret: Option<String>,
    password_file: Option<PathBuf>,
    outage: Outage,
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
        Ok(StoreSpec::Redis(Box::new(RedisSpec {
            url: cli.store.clone(),
            prefix: cli.prefix.clone(),
            secret: cli.secret.clone(),
            password_file: cli.password_file.clone(),
            outage: Outage::new(cli)?,
        })))
    }

    /// Opens the store. If Redis is down, this succeeds, and the store connects later.
    ///
    /// The second value shows what the store and its wrappers know, and the third has the routes of
    /// jobs on it.
    pub(crate) async fn open(&self, jobs: Option<&JobPolicy>) -> Result<(AnyStore, Views, Router), String> {
        let RedisSpec { url, prefix, secret, password_file, outage } = match self {
            StoreSpec::Redis(redis) => &**redis,
            StoreSpec::Memory { max_keys } => {
                let builder = MemoryStore::builder();
                let builder = match max_keys {
                    Some(max_keys) => builder.max_keys(*max_keys),
                    None => builder,
                };
                let store = builder.build();
                let metrics = StoreMetrics::new().memory(&store);
                let routes = jobs.map(|policy| routes(Jobs::new(policy.clone(), MemoryJobs::new())));
                let views = Views { metrics, circuit: None };
                return Ok((store.boxed(), views, routes.unwrap_or_default()));
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
        if let Some(file) = password_file {
            let file = file.clone();
            builder = builder.credentials(move || {
                let password = fs::read_to_string(&file).map(|text| Credentials::password(text.trim_end()));
                ready(password.map_err(|error| format!("--password-file: {}", error.kind())))
            });
            options.push_str(", --password-file");
        }
        let store = builder.connect().await;
        // The error repeats neither the URL, which may hold a password, nor the secret.
        let store = store.map_err(|error| format!("{options}: {error}"))?;
        let routes = jobs.map(|policy| routes(Jobs::new(policy.clone(), store.clone())));
        let (store, views) = outage.wrap(store);
        Ok((store, views, routes.unwrap_or_default()))
    }

    /// Completes "with its limits in …", without a password.
    pub(crate) fn place(&self) -> String {
        match self {
            StoreSpec::Memory { .. } => "memory".to_owned(),
            StoreSpec::Redis(redis) => without_password(&redis.url),
        }
    }

    /// Describes what happens to requests while the store fails, if it can fail.
    pub(crate) fn outage(&self) -> Option<String> {
        match self {
            StoreSpec::Memory { .. } => None,
            StoreSpec::Redis(redis) => Some(redis.outage.in_words()),
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
