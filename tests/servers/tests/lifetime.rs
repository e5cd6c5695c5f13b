//! Servers and their directories do not outlive the test.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::{fs, io};

use tollgate_test_servers::{Kind, Server};

use crate::{eventually, process_of};

#[test]
fn a_test_that_panics_leaves_no_server() {
    let (send, port) = std::sync::mpsc::channel();
    let test = thread::spawn(move || {
        let server = Server::start(Kind::Redis6_2).unwrap();
        let paused = Server::start(Kind::Redis6_2).unwrap();
        paused.pause().unwrap();
        send.send([server.port(), paused.port()]).unwrap();
        panic!("as it should");
    });
    assert!(test.join().is_err());
    for port in port.recv().unwrap() {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(|| Server::start(Kind::Redis6_2).unwrap()).join().unwrap();
    assert_eq!(server.command(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_process_that_is_killed_leaves_no_server_and_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = process_of(&["holds"]);
    let process = process.env("TMPDIR", directory.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ports: Vec<u16> = lines.filter_map(|line| line.strip_prefix("port ")?.parse().ok()).take(2).collect();
    assert_eq!(ports.len(), 2, "the process ended early");
    for port in &ports {
        TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).unwrap();
    }
    assert!(!naming(directory.path()).unwrap().is_empty(), "where are the watchdogs?");

    process.kill().unwrap();
    process.wait().unwrap();
    for port in ports {
        eventually("the port is free", || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
    let is_empty = || fs::read_dir(directory.path()).unwrap().next().is_none();
    eventually("the servers' directories are gone", is_empty);
    eventually("the watchdogs are gone", || naming(directory.path()).unwrap().is_empty());
}

/// The processes that were started with a path in their arguments.
fn naming(path: &Path) -> io::Result<Vec<String>> {
    let path = path.to_str().expect("a text");
    let all = fs::read_dir("/proc")?
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok());
    Ok(all.filter(|arguments| arguments.contains(path)).collect())
}
