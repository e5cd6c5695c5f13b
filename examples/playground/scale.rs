//! Fewer round trips to Redis, from the command line.

use tollgate::metrics::StoreMetrics;
use tollgate::store::{BoxStore, Store};
use tollgate::time::TimeSpan;
use tollgate::{Lease, StoreExt};

use crate::cli::Cli;

/// `--lease` and `--deny-cache`.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    lease: Option<Lease>,
    deny_cache: Option<usize>,
}

impl Scale {
    pub(crate) fn new(cli: &Cli) -> Result<Scale, String> {
        let lease = cli.lease.as_deref().map(parse_lease).transpose()?;
        if cli.deny_cache == Some(0) {
            return Err("--deny-cache must be at least 1, got 0".to_owned());
        }
        Ok(Scale { lease, deny_cache: cli.deny_cache })
    }

    /// Wraps a store that may fail. A failure policy follows.
    pub(crate) fn wrap<S: Store>(
        &self,
        store: S,
        metrics: StoreMetrics,
    ) -> (BoxStore<S::Error>, StoreMetrics) {
        let (store, metrics) = match &self.lease {
            Some(lease) => {
                let store = store.leased(lease.clone());
                let metrics = metrics.leased(&store);
                (store.boxed(), metrics)
            }
            None => (store.boxed(), metrics),
        };
        match self.deny_cache {
            Some(capacity) => (store.deny_cache(capacity).boxed(), metrics),
            None => (store, metrics),
        }
    }
}

/// `UNITS/DURATION`.
fn parse_lease(text: &str) -> Result<Lease, String> {
    let malformed = || format!("--lease: {text:?} must be a number of units and a time, such as 64/250ms");
    let (units, life) = text.split_once('/').ok_or_else(malformed)?;
    let (units, TimeSpan(life)) = units.parse().ok().zip(life.parse().ok()).ok_or_else(malformed)?;
    let lease = Lease::try_at_most(units).and_then(|lease| lease.try_lasting(life));
    lease.map_err(|error| format!("--lease: {text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_units_and_a_time() {
        assert!(parse_lease("64/250ms").is_ok());
        for (text, complaint) in [
            ("64", "must be a number of units and a time"),
            ("x/1s", "must be a number of units and a time"),
            ("64/1", "must be a number of units and a time"),
            ("0/1s", "at least 1 unit"),
            ("64/2h", "a lease must last 1 ms to 60s"),
        ] {
            let error = parse_lease(text).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
