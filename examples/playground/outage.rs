//! The failure policy of the store, from the command line.

use std::convert::Infallible;
use std::time::Duration;

use tollgate::failure::CircuitView;
use tollgate::metrics::{StoreMetrics, count_errors};
use tollgate::store::{BoxStore, Store};
use tollgate::time::TimeSpan;
use tollgate::{CircuitBreaker, MemoryStore, Share, StoreExt};

use crate::cli::{Cli, FailurePolicy};
use crate::scale::Scale;

/// `--timeout`, `--breaker`, `--keep-corrections`, `--lease`, `--deny-cache`, `--on-failure` and
/// `--share`.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    pub(crate) timeout: Duration,
    breaker: Option<Breaker>,
    scale: Scale,
    then: Then,
    keep_corrections: Option<usize>,
}

/// What shows how a store and its wrappers do.
pub(crate) struct Views {
    pub(crate) metrics: StoreMetrics,
    /// `None` without a circuit breaker.
    pub(crate) circuit: Option<CircuitView>,
}

/// `--breaker`.
#[derive(Clone, Debug)]
struct Breaker {
    settings: CircuitBreaker,
    failures: u32,
    first_probe: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Pass,
    Refuse,
    Grant(Share),
}

/// The longest wait between two probes, unless the first is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

impl Outage {
    /// Fails if an option is given that needs a store in Redis.
    pub(crate) fn none_given(cli: &Cli) -> Result<(), String> {
        let given = [
            ("--prefix", cli.prefix.is_some()),
            ("--secret", cli.secret.is_some()),
            ("--password-file", cli.password_file.is_some()),
            ("--on-failure", cli.on_failure.is_some()),
            ("--share", cli.share.is_some()),
            ("--timeout", cli.timeout.is_some()),
            ("--breaker", cli.breaker.is_some()),
            ("--keep-corrections", cli.keep_corrections.is_some()),
            ("--lease", cli.lease.is_some()),
            ("--deny-cache", cli.deny_cache.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(format!("{option} needs --store redis://...")),
            None => Ok(()),
        }
    }

    pub(crate) fn new(cli: &Cli) -> Result<Outage, String> {
        let timeout = cli.timeout.as_deref().unwrap_or("1s");
        let TimeSpan(timeout) = (timeout.parse().ok())
            .filter(|TimeSpan(timeout)| !timeout.is_zero())
            .ok_or_else(|| format!("--timeout: {timeout:?} must be a time above zero, such as 50ms or 1s"))?;
        let breaker = cli.breaker.as_deref().map(Breaker::parse).transpose()?;
        let then = match (cli.on_failure.unwrap_or_default(), &cli.share) {
            (FailurePolicy::Fallback, None) => Then::Grant(Share::WHOLE),
            (FailurePolicy::Fallback, Some(share)) => {
                Then::Grant(share.parse().map_err(|error| format!("--share: {share:?}: {error}"))?)
            }
            (_, Some(_)) => return Err("--share needs --on-failure fallback".to_owned()),
            (FailurePolicy::Open, None) => Then::Pass,
            (FailurePolicy::Closed, None) => Then::Refuse,
        };
        Ok(Outage { timeout, breaker, scale: Scale::new(cli)?, then, keep_corrections: cli.keep_corrections })
    }

    /// Wraps a store that can fail in the failure policy.
    pub(crate) fn wrap(&self, store: impl Store) -> (BoxStore<Infallible>, Views) {
        let (store, metrics) = (store.timeout(self.timeout), StoreMetrics::new());
        match &self.breaker {
            Some(breaker) => {
                let store = store.circuit_breaker(breaker.settings.clone());
                let circuit = store.circuit();
                let (store, views) = self.decide(store, metrics.circuit(circuit.clone()));
                (store, Views { circuit: Some(circuit), ..views })
            }
            None => self.decide(store, metrics),
        }
    }

    fn decide(&self, store: impl Store, metrics: StoreMetrics) -> (BoxStore<Infallible>, Views) {
        let (store, metrics) = self.scale.wrap(store, metrics);
        let views = |metrics| Views { metrics, circuit: None };
        let most = self.keep_corrections.unwrap_or(0);
        match self.then {
            Then::Pass => {
                let store = store.fail_open().observe(count_errors()).keep_corrections(most);
                (store.boxed(), views(metrics))
            }
            Then::Refuse => {
                let store = store.fail_closed().observe(count_errors()).keep_corrections(most);
                (store.boxed(), views(metrics))
            }
            Then::Grant(share) => {
                let memory = MemoryStore::new();
                let metrics = metrics.memory(&memory);
                let store = store.fall_back_to(memory, share).observe(count_errors()).keep_corrections(most);
                (store.boxed(), views(metrics))
            }
        }
    }

    /// Returns a description for the banner.
    pub(crate) fn in_words(&self) -> String {
        let effect = match self.then {
            Then::Pass => "Requests pass without limit".to_owned(),
            Then::Refuse => "Requests are refused".to_owned(),
            Then::Grant(Share::WHOLE) => "This server grants each quota in full by itself".to_owned(),
            Then::Grant(share) => format!("This server grants {share} of each quota by itself"),
        };
        let timeout = TimeSpan(self.timeout).in_words();
        let mut text = format!("{effect} while Redis does not answer within {timeout}.");
        if let Some(Breaker { failures, first_probe, .. }) = self.breaker {
            let wait = TimeSpan(first_probe).in_words();
            text.push_str(&format!(
                "\nAfter {failures} failures in a row nothing is sent to Redis until a probe, first after {wait} or a little more."
            ));
        }
        text
    }
}

impl Breaker {
    /// `N/D`.
    fn parse(text: &str) -> Result<Breaker, String> {
        let malformed =
            || format!("--breaker: {text:?} must be a number of failures and a time, such as 5/500ms");
        let (failures, first_probe) = text.split_once('/').ok_or_else(malformed)?;
        let failures = failures.parse().map_err(|_| malformed())?;
        let TimeSpan(first_probe) = first_probe.parse().map_err(|_| malformed())?;
        let settings = CircuitBreaker::default().try_failures_in_a_row(failures);
        // Keeps the rate of failures from opening the circuit earlier.
        let settings = settings.and_then(|settings| {
            settings.try_failures_of(failures.max(50), CircuitBreaker::MEMORY.min(failures.max(50) * 2))
        });
        let longest = first_probe.max(LONGEST_WAIT);
        let settings = settings.and_then(|settings| settings.try_probe_after(first_probe, longest));
        let settings = settings.map_err(|error| format!("--breaker: {text:?}: {error}"))?;
        Ok(Breaker { settings, failures, first_probe })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breaker_opens_after_the_given_number_of_failures() {
        let half = Duration::from_millis(500);
        let expected =
            |failures| CircuitBreaker::default().failures_in_a_row(failures).probe_after(half, LONGEST_WAIT);
        for (text, expected) in [
            ("5/500ms", expected(5)),
            ("100/500ms", expected(100).failures_of(100, 128)),
            ("128/500ms", expected(128).failures_of(128, 128)),
        ] {
            let settings = Breaker::parse(text).unwrap().settings;
            assert_eq!(format!("{settings:?}"), format!("{expected:?}"), "{text}");
        }
        for text in ["0/500ms", "129/500ms", "5/0s", "5"] {
            assert!(Breaker::parse(text).is_err(), "{text}");
        }
    }
}
