//! Log-ins over four servers, each a process. Of concurrent guesses no more are checked than the
//! limit, and right passwords are not refused for them.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod plan;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::failure::FailurePolicy;
use tollgate::{Key, Limiter, StoreExt};
use tollgate_conformance::random::Random;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::Client;

use plan::{BLOCK, failures};

const SERVERS: usize = 4;

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The answer to a log-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Right,
    Wrong,
    /// Too many failures.
    Refused,
    Blocked,
}

struct Fleet {
    redis: Server,
    processes: Vec<Process>,
    /// Two connections to each process: one carries at most 200 requests at once.
    clients: Vec<HttpClient<HttpConnector, Empty<Bytes>>>,
    journals: TempDir,
}

impl Fleet {
    fn start() -> Fleet {
        let redis = Server::start(Kind::Valkey9_1).unwrap();
        let journals = tempfile::tempdir().unwrap();
        let start = |n: usize| {
            let mut command = crate::process_of("log_ins");
            command.arg(redis.url()).arg(journals.path().join(n.to_string()));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            Process { child, address: line.trim().parse().unwrap() }
        };
        let client = |_| HttpClient::builder(TokioExecutor::new()).http2_only(true).build_http();
        Fleet {
            processes: (0..SERVERS).map(start).collect(),
            clients: (0..2 * SERVERS).map(client).collect(),
            redis,
            journals,
        }
    }

    /// Tries a password on the server of this number.
    fn try_password(
        &self,
        server: usize,
        name: &str,
        password: &str,
    ) -> impl Future<Output = Answer> + Send + 'static {
        self.try_from("", server, name, password)
    }

    /// Tries a password from an address, if it is not empty.
    fn try_from(
        &self,
        from: &str,
        server: usize,
        name: &str,
        password: &str,
    ) -> impl Future<Output = Answer> + Send + 'static {
        let address = self.processes[server % SERVERS].address;
        let client = self.clients[server % self.clients.len()].clone();
        let url = format!("http://{address}/{name}/{password}");
        let request = Request::get(url).header("x-address", from).body(Empty::new()).unwrap();
        async move {
            let response = timeout(2 * PATIENCE, client.request(request)).await.expect("an answer").unwrap();
            let (head, body) = response.into_parts();
            let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            match head.status.as_u16() {
                200 => Answer::Right,
                401 => Answer::Wrong,
                429 if body.contains("abnormal-usage-detected") => Answer::Blocked,
                429 if body.contains("quota-exceeded") => Answer::Refused,
                status => panic!("what is {status}? {body}"),
            }
        }
    }

    /// Tries these passwords at once, each on another server.
    async fn at_once(&self, name: &str, passwords: &[&str]) -> Vec<Answer> {
        let tries = passwords.iter().enumerate();
        let tries: JoinSet<Answer> =
            tries.map(|(n, password)| self.try_password(n, name, password)).collect();
        tries.join_all().await
    }

    /// How many passwords of a name all servers have checked.
    fn checked(&self, name: &str) -> usize {
        let count = |server: usize| {
            let journal = std::fs::read_to_string(self.journals.path().join(server.to_string())).unwrap();
            journal.lines().filter(|line| *line == name).count()
        };
        (0..SERVERS).map(count).sum()
    }

    /// The failures of names, as another process sees them.
    async fn failures(&self) -> Limiter<FailurePolicy<RedisStore>> {
        let store = RedisStore::builder(&self.redis.url()).connect().await.unwrap();
        Limiter::new([failures()]).store(store.fail_closed())
    }
}

fn count(answers: &[Answer], of: Answer) -> usize {
    answers.iter().filter(|answer| **answer == of).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_of_a_thousand_guesses_are_checked_and_the_block_lasts_its_time() {
    let fleet = Fleet::start();
    let answers = fleet.at_once("ada", &["wrong"; 1_000]).await;
    let (wrong, right) = (count(&answers, Answer::Wrong), count(&answers, Answer::Right));
    assert_eq!((wrong, right, fleet.checked("ada")), (5, 0, 5));
    let (refused, blocked) = (count(&answers, Answer::Refused), count(&answers, Answer::Blocked));
    println!("{wrong} wrong, {refused} refused, {blocked} blocked");
    // A server counts 20 denials before it starts the block, and others count meanwhile.
    assert!(blocked > 0, "no guess was blocked");

    let (limits, ada) = (fleet.failures().await, Key::from("ada"));
    // On a slow machine the block may have ended. Further denials start another.
    let blocked = async {
        loop {
            let (asked, left) = (Instant::now(), limits.blocked("name", &ada).await);
            // Enough is left to see something of it.
            if let Some(left) = left.filter(|left| *left > BLOCK / 4) {
                return (asked, left, Instant::now());
            }
            fleet.try_password(0, "ada", "wrong").await;
        }
    };
    let (asked, left, answered) = timeout(PATIENCE, blocked).await.expect("the name is blocked");
    assert!(left <= BLOCK, "{left:?}");
    // Guesses do not prolong it.
    let mut tries = 0;
    loop {
        let sent = Instant::now();
        let mut answers = fleet.at_once("ada", &["right"; SERVERS]).await;
        tries += answers.len();
        answers.retain(|answer| *answer != Answer::Blocked);
        if let Some(first) = answers.first() {
            assert_eq!(*first, Answer::Refused, "five failures in an hour");
            break;
        }
        assert!(sent < answered + left, "the block lasts for {:?} longer", sent - answered - left);
        sleep(Duration::from_millis(20)).await;
    }
    println!("blocked for {left:?} more, for {tries} tries");
    let seen = Instant::now();
    assert!(seen >= asked + left, "the block ended {:?} early", asked + left - seen);
    assert_eq!(fleet.checked("ada"), 5);
    assert_eq!(fleet.at_once("bob", &["right"; SERVERS]).await, [Answer::Right; SERVERS]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_log_ins_at_once_all_pass_and_a_typo_locks_none() {
    let fleet = Fleet::start();
    assert_eq!(fleet.at_once("ada", &["right"; 10]).await, [Answer::Right; 10]);
    for _ in 0..10 {
        let answers = fleet.at_once("bob", &["right", "right", "typo", "right", "right"]).await;
        let both = (count(&answers, Answer::Right), count(&answers, Answer::Wrong));
        assert_eq!(both, (4, 1), "{answers:?}");
    }
    let limits = fleet.failures().await;
    for name in ["ada", "bob"] {
        assert_eq!(fleet.at_once(name, &["right"; SERVERS]).await, [Answer::Right; SERVERS]);
        assert_eq!(limits.blocked("name", &Key::from(name)).await, None);
    }
}

/// A client that aborts in the check has paid for its guess, and one that aborts before has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_aborts_gains_no_guess_and_keeps_no_turn() {
    let fleet = Fleet::start();
    for n in 0..5 {
        let mut client = Client::connect(fleet.processes[n % SERVERS].address).await;
        client.send("GET /ada/slow HTTP/1.1\r\nhost: log-in\r\n\r\n").await;
        let is_checked = async {
            while fleet.checked("ada") <= n {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, is_checked).await.unwrap_or_else(|_| panic!("guess {n} is checked"));
    }
    assert_eq!(fleet.try_password(0, "ada", "right").await, Answer::Refused);
    assert_eq!(fleet.checked("ada"), 5);

    let mut clients = JoinSet::new();
    for n in 0..200 {
        let address = fleet.processes[n % SERVERS].address;
        clients.spawn(async move {
            let mut client = Client::connect(address).await;
            client.send("GET /bob/wrong HTTP/1.1\r\nhost: log-in\r\n\r\n").await;
            sleep(Duration::from_millis(Random::new(n as u64).below(60))).await;
        });
    }
    clients.join_all().await;
    // All turns are released: otherwise this waits for a lease.
    let answer = timeout(PATIENCE, fleet.try_password(1, "bob", "wrong")).await.expect("an answer");
    println!("then {answer:?}, of {} checked", fleet.checked("bob"));
    assert!(fleet.checked("bob") <= 5, "{} checked", fleet.checked("bob"));
}

/// 1,500 log-ins of an address that has used up its failures, of one name and at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_ins_of_a_refused_address_take_no_turn_of_a_name() {
    let fleet = Fleet::start();
    for n in 0..5 {
        assert_eq!(fleet.try_from("bad", n, &format!("user-{n}"), "wrong").await, Answer::Wrong);
    }
    let mut slow = Client::connect(fleet.processes[0].address).await;
    slow.send("GET /ada/slow HTTP/1.1\r\nhost: log-in\r\nx-address: good\r\n\r\n").await;
    let is_checked = async {
        while fleet.checked("ada") == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, is_checked).await.expect("the slow one has its turn");
    let begin = Instant::now();
    let guesses: JoinSet<Answer> = (0..1_500).map(|n| fleet.try_from("bad", n, "ada", "wrong")).collect();
    let answers = timeout(PATIENCE, guesses.join_all()).await.expect("no guess waits for the slow check");
    println!("1,500 were refused in {:?}", begin.elapsed());
    assert_eq!(count(&answers, Answer::Refused), 1_500);
    drop(slow);
    let begin = Instant::now();
    assert_eq!(fleet.try_from("good", 1, "ada", "right").await, Answer::Right);
    println!("then a right one took {:?}", begin.elapsed());
    assert_eq!(fleet.checked("ada"), 2);
}
