//! Test servers.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tollgate_test_servers::{Kind, Server};

use crate::{eventually, of_every_kind};

#[test]
fn every_kind_answers_with_its_version() {
    of_every_kind(|kind| {
        let server = Server::start(kind).unwrap();
        assert_eq!(server.command(&["PING"]).unwrap(), "PONG");
        let info = server.command(&["INFO", "server"]).unwrap();
        let version = match kind {
            Kind::Redis6_2 => "redis_version:6.2.",
            Kind::Redis8_2 => "redis_version:8.2.",
            Kind::Valkey9_1 => "valkey_version:9.1.",
            _ => "redis_version:",
        };
        assert!(info.contains(version), "{info}");
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid().unwrap())), "{info}");
        assert_eq!(server.url(), format!("redis://127.0.0.1:{}/", server.port()));
    });
}

#[test]
fn a_restart_keeps_the_port_and_arguments_but_no_data() {
    of_every_kind(|kind| {
        let server = Server::start_with(kind, &["--maxmemory", "3mb"]).unwrap();
        let (port, pid) = (server.port(), server.pid());
        server.command(&["SET", "a", "1"]).unwrap();
        server.kill();
        assert_eq!(server.pid(), None);
        assert!(TcpStream::connect(server.address()).is_err());
        for _ in 0..2 {
            // The second command kills too.
            server.restart().unwrap();
            assert_eq!(server.port(), port);
            assert_ne!(server.pid(), pid);
            assert_eq!(server.command(&["EXISTS", "a"]).unwrap(), "0");
            let memory = server.command(&["CONFIG", "GET", "maxmemory"]).unwrap();
            assert_eq!(memory, format!("maxmemory\n{}", 3 << 20));
            server.command(&["SET", "a", "1"]).unwrap();
        }
    });
}

#[test]
fn a_paused_server_accepts_and_does_not_answer() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let pid = server.pid();
    server.pause().unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = [0; 7];
    let silence = stream.read(&mut answer).unwrap_err().kind();
    assert!(matches!(silence, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    server.resume().unwrap();
    stream.set_read_timeout(None).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    assert_eq!(server.pid(), pid);

    server.pause().unwrap();
    server.kill();
    assert!(server.pause().is_err());
    server.restart().unwrap();
}

/// In seconds since the epoch.
fn time(server: &Server) -> u64 {
    let told = server.command(&["TIME"]).expect("an answer");
    told.lines().next().and_then(|seconds| seconds.parse().ok()).expect("a number")
}

#[test]
fn a_clock_that_is_behind_stays_behind() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2, Kind::Valkey9_1] {
        let (right, behind) = (Server::start(kind).unwrap(), Duration::from_secs(1_000));
        let behind = Server::start_behind(kind, behind, &["--maxmemory", "3mb"]).unwrap();
        for _ in 0..2 {
            let (before, told, after) = (time(&right), time(&behind) + 1_000, time(&right));
            assert!((before - 2..=after).contains(&told), "{told} from {before} to {after} on {kind}");
            behind.command(&["SET", "a", "1", "PX", "50"]).unwrap();
            eventually("a key expires", || behind.command(&["EXISTS", "a"]).unwrap() == "0");
            behind.restart().unwrap();
        }
        assert!(behind.command(&["CONFIG", "GET", "maxmemory"]).unwrap().ends_with("3145728"));
    }
}

#[test]
fn answers_are_as_redis_cli_prints_them() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let lua = "return {1, 'two\\nlines', {false, 'three'}}";
    assert_eq!(server.command(&["EVAL", lua, "0"]).unwrap(), "1\ntwo\nlines\n\nthree");
    assert_eq!(server.command(&["GET", "nothing"]).unwrap(), "");
    assert_eq!(server.command(&["KEYS", "*"]).unwrap(), "");
    assert_eq!(server.command(&["ECHO", "a b\r\nc"]).unwrap(), "a b\r\nc");
    let error = server.command(&["NONSENSE", "of", "mine"]).unwrap_err().to_string();
    assert!(error.contains("\"NONSENSE of mine\"") && error.contains("unknown command"), "{error}");
}

#[test]
fn servers_started_at_once_get_distinct_ports() {
    let servers: Vec<Server> = thread::scope(|scope| {
        let start = |_| scope.spawn(|| Server::start(Kind::Valkey9_1).unwrap());
        let started: Vec<_> = (0..16).map(start).collect();
        started.into_iter().map(|server| server.join().unwrap()).collect()
    });
    let ports: HashSet<u16> = servers.iter().map(Server::port).collect();
    assert_eq!(ports.len(), servers.len());
    for server in &servers {
        let own = format!("process_id:{}\r\n", server.pid().unwrap());
        assert!(server.command(&["INFO", "server"]).unwrap().contains(&own));
    }
}

#[test]
fn a_server_that_fails_to_start_reports_the_reason() {
    of_every_kind(|kind| {
        let error = Server::start_with(kind, &["--no-such-option", "1"]).unwrap_err().to_string();
        assert!(error.starts_with(&kind.to_string()) && error.contains("no-such-option"), "{error}");

        // Nodes of Clusters listen on two ports.
        let server = Server::start_with(kind, &["--cluster-enabled", "yes"]).unwrap();
        server.kill();
        for port in [server.port(), server.port() + 10_000] {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
            let error = server.restart().unwrap_err().to_string();
            assert!(error.contains("already in use"), "{error}");
            drop(other);
        }
        server.restart().unwrap();
    });
}
