//! Failure policies while a store fails: in tokio's paused time, and over sockets.

mod breaker;
mod cancellation;
mod charges;
mod contract;
mod events;
mod fallback;
mod kept;
mod log;
mod policies;
mod server;
mod size;
mod slots;
mod timeout;

use std::convert::Infallible;
use std::time::Duration;

use tollgate::StoreExt;
use tollgate::store::BoxStore;
use tollgate_tests::{Connection, Failing, Fault, clock, store};

/// How long stores are waited for.
const TIMEOUT: Duration = Duration::from_millis(50);

/// The ways to fail: at once, after a wait, and without an answer.
const FAILURES: [Connection; 3] =
    [Connection::Fails(Fault::Unreachable), Connection::FailsLater(Fault::Unreachable), Connection::IsSilent];

/// A store with a clock that stands still.
fn failing(connection: Connection) -> Failing {
    Failing::new(store(&clock()), connection)
}

fn open(store: &Failing) -> BoxStore<Infallible> {
    store.clone().timeout(TIMEOUT).fail_open().boxed()
}

fn closed(store: &Failing) -> BoxStore<Infallible> {
    store.clone().timeout(TIMEOUT).fail_closed().boxed()
}
