//! The conformance suite on each server. A failure prints the name of the case.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::runtime::Builder;
use tollgate::Algorithm;
use tollgate_conformance::Suite;
use tollgate_redis::{RedisStoreBuilder, SlidingLogLayout};
use tollgate_test_servers::{Cluster, Kind, Sentinel, Server, short_or_long};

use crate::redis::{builder, prefix, shared};

/// The whole suite, with a few random steps. The tests at the end of this file make many more.
pub(crate) fn whole() -> Suite {
    Suite::new().steps(short_or_long(100, 500))
}

/// The whole suite with `TOLLGATE_LONG=1`. Without it, random sets of all algorithms.
pub(crate) fn whole_or_short() -> Suite {
    short_or_long(Suite::new().steps(200).only_steps_of(Algorithm::Gcra), whole())
}

pub(crate) fn holds(suite: Suite, url: &str, layout: SlidingLogLayout) {
    holds_of(suite, || builder(url).sliding_log(layout));
}

/// The same for stores of a builder. It waits for long: the suite takes 99,991 units at once, and
/// the other tests of the binary run at the same time.
pub(crate) fn holds_of(suite: Suite, builder: impl Fn() -> RedisStoreBuilder) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let make = async |clock| builder().prefix(prefix()).clock(clock).connect().await.unwrap();
    runtime.block_on(async {
        suite.clone().run(&make).await;
        suite.run_usage(&make).await;
    });
}

fn holds_on(kind: Kind, suite: Suite) {
    holds(suite, &shared(kind).url(), SlidingLogLayout::List);
}

#[test]
fn redis_6_2_keeps_the_contract() {
    holds_on(Kind::Redis6_2, whole_or_short());
}

#[test]
fn redis_8_2_keeps_the_contract() {
    holds_on(Kind::Redis8_2, whole());
}

#[test]
fn valkey_9_1_keeps_the_contract() {
    holds_on(Kind::Valkey9_1, whole_or_short());
}

#[test]
fn the_installed_server_keeps_the_contract() {
    holds_on(Kind::Installed, whole_or_short());
}

#[test]
fn logs_in_sorted_sets_keep_the_contract() {
    let suite = whole();
    let logs = suite.clone().only_steps_of(Algorithm::SLIDING_LOG);
    holds(short_or_long(logs, suite), &shared(Kind::Redis8_2).url(), SlidingLogLayout::SortedSet);
}

#[test]
fn a_cluster_keeps_the_contract() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    let url = format!("redis-cluster://{}", nodes.join(","));
    holds(whole().without_atomic_sets_across_keys(), &url, SlidingLogLayout::List);
}

#[test]
fn a_master_under_sentinels_keeps_the_contract() {
    let sentinel = Sentinel::start(Kind::Installed).unwrap();
    let sentinels: Vec<String> = sentinel.sentinels().iter().map(|one| one.address().to_string()).collect();
    let url = format!("redis-sentinel://{}/{}", sentinels.join(","), sentinel.master_name());
    holds(whole_or_short(), &url, SlidingLogLayout::List);
}

/// Redis up to 7.2.4 and Valkey up to 7.2.5 write a multiple of 1e+8 as `1e+8` if a script passes
/// it to a command as a number. So this test makes each such argument an error.
#[test]
fn large_numbers_reach_commands_as_digits() {
    const WARY: &str = "
        local real = redis
        local function wary(...)
          for i = 1, select('#', ...) do
            local word = select(i, ...)
            if type(word) == 'number' and math.abs(word) >= 100000000 then
              error(tostring((...)) .. ' was handed a number: ' .. word)
            end
          end
          return ...
        end
        local redis = { call = function(...) return real.call(wary(...)) end,
                        pcall = function(...) return real.pcall(wary(...)) end }
        ";
    // A server of its own, because a shared one knows the scripts already.
    let server = Server::start(Kind::Redis6_2).unwrap();
    let address = server.address();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let hashes = Arc::<Hashes>::default();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let to_server = TcpStream::connect(address).unwrap();
            // Otherwise each small write waits for the delayed ACK of the one before it.
            for stream in [&client, &to_server] {
                stream.set_nodelay(true).unwrap();
            }
            let (mut to_client, mut from_server) =
                (client.try_clone().unwrap(), to_server.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from_server, &mut to_client));
            let hashes = Arc::clone(&hashes);
            thread::spawn(move || pass_scripts_behind(WARY, &hashes, client, to_server));
        }
    });
    // Both at once, because a step mostly waits for the server.
    thread::scope(|scope| {
        let all = whole().steps(short_or_long(30, 100));
        let logs = all.clone().only_steps_of(Algorithm::SLIDING_LOG);
        let sorted_sets = short_or_long(logs, all.clone());
        scope.spawn(|| holds(all, &url, SlidingLogLayout::List));
        scope.spawn(|| holds(sorted_sets, &url, SlidingLogLayout::SortedSet));
    });
}

/// The hash of each changed script by that of the script itself.
type Hashes = Mutex<HashMap<Vec<u8>, Vec<u8>>>;

/// Passes on the commands of a client, with `first` in front of each script. The server knows only
/// the changed scripts, so a call by the hash that the store sends gets the changed script's hash.
fn pass_scripts_behind(first: &str, hashes: &Hashes, from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return to.shutdown(Shutdown::Both);
        }
        let words: usize = line.trim_end()[1..].parse().unwrap();
        let mut command: Vec<Vec<u8>> = Vec::new();
        for _ in 0..words {
            line.clear();
            from.read_line(&mut line)?;
            let mut word = vec![0; line.trim_end()[1..].parse::<usize>().unwrap() + 2];
            from.read_exact(&mut word)?;
            word.truncate(word.len() - 2);
            command.push(word);
        }
        if command[0] == b"EVAL" {
            let changed = [first.as_bytes(), &command[1]].concat();
            hashes.lock().unwrap().insert(hash_of(&command[1]), hash_of(&changed));
            command[1] = changed;
        } else if command[0] == b"EVALSHA"
            && let Some(hash) = hashes.lock().unwrap().get(&command[1])
        {
            command[1].clone_from(hash);
        }
        let mut bytes = Vec::new();
        write!(bytes, "*{words}\r\n")?;
        for word in &command {
            write!(bytes, "${}\r\n", word.len())?;
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        to.write_all(&bytes)?;
    }
}

/// By a server that is not under test.
fn hash_of(script: &[u8]) -> Vec<u8> {
    let script = str::from_utf8(script).unwrap();
    shared(Kind::Installed).command(&["SCRIPT", "LOAD", script]).unwrap().into_bytes()
}

/// 57 of 100 steps are decisions or charges, which are compared. The others move the clock, refund
/// or reset. A history has 9 steps of one key on average, and a look after each.
/// The servers run at once, and the algorithms of a server one after another: more at once would
/// take the processors from tests with deadlines.
#[test]
fn random_decisions_and_histories_of_each_algorithm_match_the_oracle() {
    let logs = |layout: SlidingLogLayout| move |algorithm: Algorithm| (algorithm, layout);
    let list = Suite::ALGORITHMS.map(logs(SlidingLogLayout::List));
    let sorted_set = Suite::ALGORITHMS.map(logs(SlidingLogLayout::SortedSet));
    let sorted_set = sorted_set.into_iter().filter(|(of, _)| matches!(of, Algorithm::SlidingLog { .. }));
    let list = list.into_iter().filter(|(of, _)| *of != Algorithm::InFlight);
    let all: Vec<_> = list.chain(sorted_set).collect();
    thread::scope(|scope| {
        for (n, &kind) in Kind::EVERY.iter().enumerate() {
            let of_server = all.iter().skip(n).step_by(Kind::EVERY.len());
            scope.spawn(move || {
                for &(algorithm, layout) in of_server {
                    let suite = Suite::new().steps(short_or_long(8_000, 176_000));
                    let suite = suite.histories(short_or_long(500, 10_000)).only_steps_of(algorithm);
                    holds(suite, &shared(kind).url(), layout);
                }
            });
        }
    });
}

/// A history of slots makes 50 calls on average, one after another. Each server plays others.
#[test]
fn random_histories_of_slots_match_the_oracle() {
    let histories = short_or_long(100, 2_500);
    thread::scope(|scope| {
        for (first, &kind) in (0..).map(|n| n * histories).zip(Kind::EVERY) {
            let suite =
                Suite::new().histories_of(first..first + histories).only_steps_of(Algorithm::InFlight);
            scope.spawn(move || holds(suite, &shared(kind).url(), SlidingLogLayout::List));
        }
    });
}
