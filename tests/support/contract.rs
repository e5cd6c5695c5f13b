//! The conformance suite, for stores whose callers wait in simulated time only.

use std::fmt::Debug;
use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::store::Store;
use tollgate::time::Clock;
use tollgate_conformance::Suite;

use crate::within;

/// Runs the suite on the stores that `make` makes. Some cases would hang in a store that can
/// deadlock.
///
/// # Panics
/// If a store breaks the contract, or hangs.
pub fn keeps_the_contract<S>(make: impl Fn(Clock) -> S + Send + 'static)
where
    S: Store<Error: Debug>,
{
    keeps_the_contract_of(Suite::new(), make);
}

/// [`keeps_the_contract`] with a suite that excuses the stores from something.
///
/// # Panics
/// If a store breaks the rest of the contract, or hangs.
pub fn keeps_the_contract_of<S>(suite: Suite, make: impl Fn(Clock) -> S + Send + 'static)
where
    S: Store<Error: Debug>,
{
    within(Duration::from_secs(600), move || {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(suite.run(async |clock| make(clock)));
    });
}
