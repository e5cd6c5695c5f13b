//! Faults that a server's own commands cause.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate_test_servers::Server;

use crate::faults::fault::{Fault, PAUSE};

pub(crate) fn begin_on(fault: Fault, server: &Server) {
    match fault {
        Fault::Killed => server.kill(),
        Fault::Stopped => server.pause().expect("a signal"),
        Fault::ClientsPaused => {
            command(server, &["CLIENT", "PAUSE", &PAUSE.as_millis().to_string()]);
        }
        // One byte, so that the limit is exceeded.
        Fault::MemoryFull => {
            command(server, &["CONFIG", "SET", "maxmemory", "1"]);
        }
        Fault::MemoryFullAndEvicting => {
            // In parts, so that each blocks only for a moment.
            for n in 0..100 {
                let fill = "for n = 1, 100 do redis.call('SET', ARGV[1] .. '-' .. n, 'something else') end";
                command(server, &["EVAL", fill, "0", &n.to_string()]);
            }
            command(server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
            let info = command(server, &["INFO", "memory"]);
            let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
            let used: u64 = used.and_then(|number| number.parse().ok()).expect("a number");
            // Some of the added data must go.
            command(server, &["CONFIG", "SET", "maxmemory", &(used - (256 << 10)).to_string()]);
        }
        Fault::PasswordSet => {
            command(server, &["ACL", "SETUSER", "admin", "on", "nopass", "~*", "+@all"]);
            command(server, &["CONFIG", "SET", "requirepass", "secret"]);
            by_admin(server, "CLIENT KILL TYPE normal SKIPME yes");
        }
        Fault::MadeReplica => {
            // No server listens on that port, so the replica keeps its data.
            command(server, &["REPLICAOF", "127.0.0.1", "1"]);
        }
        _ => {}
    }
}

pub(crate) fn end_on(fault: Fault, server: &Server) {
    match fault {
        Fault::Killed => server.restart().expect("a restart"),
        Fault::Stopped => server.resume().expect("a signal"),
        // This command is paused too.
        Fault::ClientsPaused => drop(command(server, &["PING"])),
        Fault::MemoryFull => drop(command(server, &["CONFIG", "SET", "maxmemory", "0"])),
        Fault::PasswordSet => by_admin(server, "CONFIG SET requirepass \"\""),
        Fault::MadeReplica => drop(command(server, &["REPLICAOF", "NO", "ONE"])),
        _ => {}
    }
}

pub(crate) fn command(server: &Server, words: &[&str]) -> String {
    server.command(words).expect("an answer")
}

/// Runs a command as a user without a password, when the others need one.
fn by_admin(server: &Server, line: &str) {
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.write_all(format!("AUTH admin any\r\n{line}\r\n").as_bytes()).expect("it is sent");
    let answers = BufReader::new(stream).lines().take(2).map(|line| line.expect("a line"));
    assert!(answers.into_iter().all(|answer| !answer.starts_with('-')), "{line} is refused");
}

pub(crate) fn patiently(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not in a minute: {what}");
}
