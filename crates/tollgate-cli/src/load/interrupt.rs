//! Ctrl-C.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC as Signal, ctrl_c};

/// From its construction on, Ctrl-C does not end the process.
pub(crate) struct Interrupts(Signal);

impl Interrupts {
    #[cfg(unix)]
    pub(crate) fn new() -> io::Result<Interrupts> {
        signal(SignalKind::interrupt()).map(Interrupts)
    }

    #[cfg(windows)]
    pub(crate) fn new() -> io::Result<Interrupts> {
        ctrl_c().map(Interrupts)
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
