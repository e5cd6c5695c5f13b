//! Free ports.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;

/// The range of server ports. With the ports of the cluster bus it ends at 32,000, below Linux's
/// ports for outgoing connections. Otherwise a client that connects to a killed server could get
/// its port, connect to itself, and block the server's restart.
const FIRST: u32 = 12_000;
const COUNT: u32 = 10_000;

/// The distance of the cluster bus port from the server port, fixed before version 7.0.
const BUS: u16 = 10_000;

/// Returns a free port whose cluster bus port is free too. Another process may still take it first.
pub(super) fn free() -> Result<u16, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Spreads processes with consecutive IDs over the range.
    let begin = process::id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let n = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + n).expect("below 2^16");
        if is_free(port) && is_free(port + BUS) {
            return Ok(port);
        }
    }
    Err(Error(format!("no free port from {FIRST} to {}", FIRST + COUNT - 1)))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
