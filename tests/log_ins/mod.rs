//! Log-ins over four servers, each a process. Of concurrent guesses no more are checked than the
//! limit, and right passwords are not refused for them, also while Redis stalls.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod plan;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use tollgate::failure::{Answering, Fixed};
use tollgate::store::{Check, Store, Times};
use tollgate::{Key, Limiter, StoreExt};
use tollgate_conformance::random::Random;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::Client;

use crate::stalls::{
    HOUR, claims_are_over, claims_lost, eventually, stall, stall_and_cut, stall_time, wait_by,
};
use plan::{BLOCK, failures, turns};

const SERVERS: usize = 4;

/// How many names have clients that stay, and as many have clients that leave.
const NAMES: u64 = 4;

/// The pause of a client between two log-ins.
const PAUSE: Duration = Duration::from_millis(50);

/// How long callers wait for the answer to a claim. Redis stalls for longer.
const HASTE: Duration = Duration::from_millis(50);

/// The server that is killed.
const KILLED: usize = 3;

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
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
    /// Redis or the server has failed.
    Failed,
}

struct Fleet {
    redis: Server,
    processes: Vec<Process>,
    /// Two connections to each process: one carries at most 200 requests at once.
    clients: Vec<HttpClient<HttpConnector, Empty<Bytes>>>,
    journals: TempDir,
}

/// Where to log in.
struct LogInServer {
    address: SocketAddr,
    client: HttpClient<HttpConnector, Empty<Bytes>>,
}

impl LogInServer {
    async fn try_password(&self, name: &str, password: &str) -> Answer {
        self.try_from("", name, password).await
    }

    /// Tries a password from an address, if it is not empty.
    async fn try_from(&self, from: &str, name: &str, password: &str) -> Answer {
        let url = format!("http://{}/{name}/{password}", self.address);
        let request = Request::get(url).header("x-address", from).body(Empty::new()).unwrap();
        let response = timeout(2 * PATIENCE, self.client.request(request)).await.expect("an answer");
        let Ok(response) = response else { return Answer::Failed };
        let (head, body) = response.into_parts();
        let Ok(body) = body.collect().await else { return Answer::Failed };
        let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        match head.status.as_u16() {
            200 => Answer::Right,
            401 => Answer::Wrong,
            429 if body.contains("abnormal-usage-detected") => Answer::Blocked,
            429 if body.contains("quota-exceeded") => Answer::Refused,
            503 => Answer::Failed,
            status => panic!("what is {status}? {body}"),
        }
    }
}

impl Fleet {
    fn start() -> Fleet {
        Fleet::with(Duration::from_secs(15), Duration::from_secs(10))
    }

    /// The time to live of turns, and how long callers wait for the answer to a claim.
    fn with(ttl: Duration, haste: Duration) -> Fleet {
        let redis = Server::start(Kind::Valkey9_1).unwrap();
        let journals = tempfile::tempdir().unwrap();
        let start = |n: usize| {
            let mut command = crate::process_of("log_ins");
            command.arg(redis.url()).arg(journals.path().join(n.to_string()));
            command.args([ttl, haste].map(|time| time.as_millis().to_string()));
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

    /// The server of this number, over one of the connections to it.
    fn server(&self, number: usize) -> LogInServer {
        let address = self.processes[number % SERVERS].address;
        LogInServer { address, client: self.clients[number % self.clients.len()].clone() }
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
        let (server, words) = (self.server(server), [from, name, password].map(str::to_owned));
        async move {
            let [from, name, password] = &words;
            server.try_from(from, name, password).await
        }
    }

    /// Tries these passwords at once, each on another server.
    async fn at_once(&self, name: &str, passwords: &[&str]) -> Vec<Answer> {
        let tries = passwords.iter().enumerate();
        let tries: JoinSet<Answer> = tries
            .map(|(n, password)| {
                let (server, name, password) = (self.server(n), name.to_owned(), (*password).to_owned());
                async move { server.try_password(&name, &password).await }
            })
            .collect();
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

    /// The addresses of the servers, but for one that was killed.
    fn addresses(&self, killed: Option<usize>) -> Vec<SocketAddr> {
        let runs = |(n, _): &(usize, _)| Some(*n) != killed;
        self.processes.iter().enumerate().filter(runs).map(|(_, process)| process.address).collect()
    }

    /// Logs in on all servers until `disturb` has ended. Some clients stay, some leave at any time,
    /// and some guess. Returns the answers to those that stay. They have the right password.
    async fn work(&mut self, disturb: impl AsyncFnOnce(&mut Fleet)) -> Vec<Answer> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for n in 0..48 {
            let (server, is_over) = (self.server(n), Arc::clone(&is_over));
            clients.spawn(async move {
                let (mut random, mut answers) = (Random::new(n as u64), Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    let name = random.below(NAMES);
                    match n % 3 {
                        0 => answers.push(server.try_password(&format!("stays{name}"), "right").await),
                        1 => {
                            let leaves = Duration::from_millis(random.below(300));
                            let name = format!("leaves{name}");
                            let _ = timeout(leaves, server.try_password(&name, "right")).await;
                        }
                        _ => _ = server.try_password("eve", "wrong").await,
                    }
                    sleep(PAUSE).await;
                }
                answers
            });
        }
        disturb(self).await;
        is_over.store(true, Ordering::Relaxed);
        let answers = timeout(2 * PATIENCE, clients.join_all()).await.expect("all clients end");
        answers.into_iter().flatten().collect()
    }

    /// The names whose turns are taken, of those that [`Fleet::work`] logs in.
    async fn taken(&self, ttl: Duration) -> Vec<String> {
        let store = RedisStore::builder(&self.redis.url()).connect().await.unwrap();
        let turns = turns(ttl);
        let names = (0..NAMES).flat_map(|n| [format!("stays{n}"), format!("leaves{n}")]);
        let mut taken = Vec::new();
        for name in names.chain(["eve".to_owned()]) {
            let look = store.acquire(&[Check::new(&turns, &Key::from(&*name), 1)], Times::LOOK);
            if look.wait().await.unwrap().each()[0].remaining() == 0 {
                taken.push(name);
            }
        }
        taken
    }

    /// The failures of names, as another process sees them.
    async fn failures(&self) -> Limiter<Answering<RedisStore, Fixed>> {
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
    assert_eq!(count(&answers, Answer::Failed), 0);
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
    // All turns are released: otherwise this waits for a time to live.
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

/// The time to live of a turn is an hour. If a late claim kept its turn, no log-in of its name
/// would pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalls_leave_no_turn_without_a_holder_and_refuse_no_right_log_in() {
    let mut fleet = Fleet::with(HOUR, HASTE);
    let answers = fleet.work(async |fleet| stall(&[&fleet.redis], stall_time()).await).await;
    assert_eq!(count(&answers, Answer::Right), answers.len(), "{answers:?}");
    let servers = fleet.addresses(None);
    claims_are_over(&servers).await;
    eventually("no turn is taken", async || fleet.taken(HOUR).await.is_empty()).await;
    println!("{} right log-ins, {} guesses", answers.len(), fleet.checked("eve"));
    assert_eq!(claims_lost(&servers).await, 0);
    assert!(fleet.checked("eve") <= 5, "{} checked", fleet.checked("eve"));
    assert!(!answers.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_lost_claims_are_free_within_a_time_to_live() {
    let ttl = Duration::from_secs(1);
    let mut fleet = Fleet::with(ttl, HASTE);
    let servers = fleet.addresses(Some(KILLED));
    let answers = fleet
        .work(async |fleet| {
            let half = stall_time() / 2;
            stall_and_cut(&[&fleet.redis], half, async || 1).await;
            fleet.redis.pause().unwrap();
            sleep(ttl / 4).await;
            fleet.processes[KILLED].kill();
            fleet.redis.resume().unwrap();
            stall_and_cut(&[&fleet.redis], half, async || claims_lost(&servers).await).await;
        })
        .await;
    claims_are_over(&servers).await;
    wait_by(&fleet.redis, ttl).await;
    assert_eq!(fleet.taken(ttl).await, [""; 0], "each turn is free within a time to live");
    let right = count(&answers, Answer::Right);
    println!("{right} of {} right log-ins, {} claims lost", answers.len(), claims_lost(&servers).await);
    assert!(right > 0 && count(&answers, Answer::Wrong) == 0);
    assert!(fleet.checked("eve") <= 5, "{} checked", fleet.checked("eve"));
    assert_eq!(fleet.at_once("bob", &["right"; 3]).await, [Answer::Right; 3]);
}
