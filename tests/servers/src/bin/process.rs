//! A separate process that tests start: to set another environment, or to kill it.

use std::io::{self, Read};
use std::time::Duration;

use tollgate_test_servers::{Error, Kind, Server};

/// `starts KIND` prints why a server of that kind cannot start, and `starts-behind KIND` why none
/// with a slow clock can.
///
/// `holds` prints the ports of two servers, and waits until it is killed.
fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &*words.iter().map(String::as_str).collect::<Vec<_>>() {
        ["starts", name] => match Server::start(kind_of(name)) {
            Ok(_) => panic!("a server came up"),
            Err(error) => println!("{error}"),
        },
        ["starts-behind", name] => match Server::start_behind(kind_of(name), Duration::from_secs(60), &[]) {
            Ok(_) => panic!("a server came up"),
            Err(error) => println!("{error}"),
        },
        ["holds"] => {
            let servers = [Server::start(Kind::Redis6_2)?, Server::start(Kind::Redis6_2)?];
            servers[0].restart()?;
            servers[1].pause()?;
            for server in &servers {
                println!("port {}", server.port());
            }
            // Until the other end is closed, which does not happen.
            io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
        }
        _ => panic!("what is {words:?}?"),
    }
    Ok(())
}

fn kind_of(name: &str) -> Kind {
    *Kind::EVERY.iter().find(|kind| kind.to_string() == name).expect("a kind")
}
