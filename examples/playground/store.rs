//! Where the counts are kept, as the command line says it: a store whose type is chosen at run time.

use std::convert::Infallible;
use std::time::Duration;

use tollgate::{BoxStore, FailureExt, MemoryStore, StoreExt};
use tollgate_redis::RedisStore;

use crate::cli::OnFailure;
use crate::span;

/// A store of any type, which always has an answer.
pub(crate) type AnyStore = BoxStore<Infallible>;

/// `--store`, and what belongs to it.
#[derive(Debug)]
pub(crate) enum StoreSpec {
    Memory,
    Redis { url: String, timeout: Duration, on_failure: OnFailure },
}

/// A connection is given at least this long to answer: it is given up because it hangs, not because callers are in a hurry.
const PATIENCE: Duration = Duration::from_secs(1);

impl StoreSpec {
    pub(crate) fn new(
        store: String,
        on_failure: Option<OnFailure>,
        timeout: Option<&str>,
    ) -> Result<StoreSpec, String> {
        if store == "memory" {
            return match (on_failure, timeout) {
                (None, None) => Ok(StoreSpec::Memory),
                (Some(_), _) => {
                    Err("--on-failure needs --store redis://...: memory does not fail".to_owned())
                }
                (None, Some(_)) => {
                    Err("--timeout needs --store redis://...: memory answers at once".to_owned())
                }
            };
        }
        let timeout = timeout.unwrap_or("1s");
        let timeout = span::parse(timeout).filter(|timeout| !timeout.is_zero()).ok_or_else(|| {
            format!("--timeout: {timeout:?} is not a time such as 50ms or 1s, and longer than zero")
        })?;
        Ok(StoreSpec::Redis { url: store, timeout, on_failure: on_failure.unwrap_or_default() })
    }

    /// The store. A Redis that is down is no error: it is joined when it comes up.
    pub(crate) async fn open(&self) -> Result<AnyStore, String> {
        let StoreSpec::Redis { url, timeout, on_failure } = self else {
            return Ok(MemoryStore::new().boxed());
        };
        let store = RedisStore::builder(url).response_timeout(PATIENCE.max(*timeout)).connect().await;
        // The error does not repeat the URL, which may hold a password.
        let store = store.map_err(|error| format!("--store: {error}"))?.timeout(*timeout);
        Ok(match on_failure {
            OnFailure::Open => store.fail_open().boxed(),
            OnFailure::Closed => store.fail_closed().boxed(),
        })
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
        let StoreSpec::Redis { timeout, on_failure, .. } = self else { return None };
        let timeout = span::in_words(*timeout);
        let fate = match on_failure {
            OnFailure::Open => "pass without limit",
            OnFailure::Closed => "are refused",
        };
        Some(format!("Requests {fate} while it fails to answer within {timeout}."))
    }
}

/// A URL without user and password, which stand before the host, or among the parameters of a socket's.
fn without_password(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}
