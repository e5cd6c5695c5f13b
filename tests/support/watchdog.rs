//! A deadlock should fail a test, not hang it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Runs `work` on a thread of its own.
///
/// # Panics
/// If `work` does, or if it takes longer than `limit`.
pub fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = channel();
    let worker = thread::spawn(move || send.send(work()));
    match receive.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("not done within {limit:?}: a deadlock?"),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the worker sends before it ends"),
        },
    }
}
