//! The store in Redis and Valkey, against real servers: the contract, what rests on the server and for how long, what befalls
//! a store there (values that are not its own, scripts that are forgotten, replies that are lost, servers that die), and what
//! it tells who connects.
//!
//! Most tests share a server of a kind, each under a prefix of its own. Those that kill, pause or reconfigure one, or that
//! count what it is asked, start their own.

mod contract;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_conformance::servers::{Kind, Server};

/// A server of that kind, for all tests that leave it as it is.
fn shared(kind: Kind) -> &'static Server {
    static SERVERS: [OnceLock<Server>; 4] = [const { OnceLock::new() }; 4];
    let at = Kind::EVERY.iter().position(|one| *one == kind).expect("a known kind");
    SERVERS[at].get_or_init(|| Server::start(kind).expect("a server"))
}

/// A prefix that nobody else has.
fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
