//! Calls of a store that no caller waits for.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use tokio::runtime::Handle;

/// Runs a future to its end: here, if a store in memory answers now; otherwise in a task. Returns
/// whether it runs, which it does not without a runtime.
pub(crate) fn in_background(mut future: Pin<Box<dyn Future<Output = ()> + Send>>) -> bool {
    // A task polls all others again.
    if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        return true;
    }
    match Handle::try_current() {
        Ok(runtime) => _ = runtime.spawn(future),
        Err(_) => return false,
    }
    true
}
