//! Free ports.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;

/// Where the ports of servers begin, and how many they are. With those of the cluster bus they end at 32,000, below the
/// ports that Linux gives to outgoing connections: a client that knocks at the port of a killed server could otherwise be
/// given that very port, connect to itself, and keep the server from coming back.
const FIRST: u32 = 12_000;
const COUNT: u32 = 10_000;

/// How far the port of the cluster bus is from that of the server, fixed in versions before 7.0.
const BUS: u16 = 10_000;

/// A port on which nothing listens, nor on that of its cluster bus. No two calls of a process return the same; another
/// process may still be faster in taking it.
pub(super) fn free() -> Result<u16, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Each process begins elsewhere, also if their numbers follow each other.
    let begin = process::id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let n = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + n).expect("below 2^16");
        if is_free(port) && is_free(port + BUS) {
            return Ok(port);
        }
    }
    Err(Error(format!("no port is free from {FIRST} to {}", FIRST + COUNT - 1)))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
