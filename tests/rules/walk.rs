//! Four servers follow a file that changes at random, and limit their callers together.
//!
//! With `TOLLGATE_RULES_SECONDS=60` they do for a minute.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::config::{Registry, RuleFile};
use tollgate_conformance::random::Random;
use tollgate_test_servers::{Kind, Server, short_or_long};

use crate::rules::journal::Journal;

const SERVERS: usize = 4;
const CLIENTS: u64 = 24;

/// Far beyond the time in which an edit, or an error in it, shows, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The rules of an edit: the limits by their names.
pub(crate) type Limits = BTreeMap<String, u64>;

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(folder: &Path, n: usize, url: &str) -> Process {
        let mut command = crate::process_of("rules");
        command.arg(url).arg(rules(folder)).arg(folder.join(format!("journal-{n}")));
        let log = fs::File::create(folder.join(format!("log-{n}"))).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Process { child, address: line.trim().parse().unwrap() }
    }

    async fn get(&self, path: &str) -> String {
        let answer = reqwest::get(format!("http://{}{path}", self.address)).await.unwrap();
        answer.text().await.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The file that is watched, behind two links as a ConfigMap of Kubernetes is.
fn rules(folder: &Path) -> PathBuf {
    folder.join("rules.toml")
}

/// Edits the file at random.
struct Editor {
    folder: PathBuf,
    random: Random,
    /// The number of the latest edit.
    edit: u64,
    /// The limits of each edit whose text is a valid file.
    limits: BTreeMap<u64, Limits>,
    /// The text in the file, if there is one.
    text: Option<String>,
}

impl Editor {
    fn new(folder: &Path) -> Editor {
        let (folder, random) = (folder.to_owned(), Random::new(7));
        let mut editor = Editor { folder, random, edit: 0, limits: BTreeMap::new(), text: None };
        symlink("..data/rules.toml", rules(&editor.folder)).unwrap();
        let text = editor.valid_text();
        editor.swap(text);
        editor
    }

    /// The text of a set with random limits. The rule `edit` comes first, and its limit is the
    /// number of the edit.
    fn valid_text(&mut self) -> String {
        self.edit += 1;
        let mut text = format!(
            "[[rule]]\nname = \"edit\"\nquota = \"{}/d\"\nby = \"global\"\ncost = \"nothing\"\n",
            self.edit
        );
        for (name, algorithm) in [
            ("fixed", "fixed-window"),
            ("log", "sliding-log"),
            ("ring", "sliding-buckets"),
            ("bucket", "gcra"),
        ] {
            // At times a rule is gone, and comes back.
            if self.random.below(10) > 0 {
                // All divide a day. Small ones are below what was used before.
                let is_small = self.random.below(8) == 0;
                let limit = self.random.one_of(if is_small { &[96, 1_440] } else { &[43_200, 86_400] });
                text += &format!(
                    "\n[[rule]]\nname = \"{name}\"\nquota = \"{limit}/d\"\nby = \"global\"\n\
                     algorithm = \"{algorithm}\"\ncost = \"cost\"\n"
                );
            }
        }
        text
    }

    /// Writes down which limits a text means, if it is valid.
    fn note(&mut self, text: &str) -> bool {
        let registry = Registry::new().cost("cost", |_| 1).cost("nothing", |_| 0);
        let Ok(rules) = RuleFile::from_toml(text).and_then(|file| registry.rules(&file)) else {
            return false;
        };
        let limits =
            rules.iter().map(|rule| (rule.policy().name().to_owned(), rule.policy().quota().limit()));
        self.limits.insert(self.edit, limits.collect());
        true
    }

    /// Makes one edit.
    fn edit(&mut self) {
        let text = self.valid_text();
        match self.random.below(10) {
            0..=3 => self.write_in_place(text),
            4..=5 => self.rename_over(text),
            6 => self.swap(text),
            7 => {
                let end = usize::try_from(self.random.below(text.len() as u64)).unwrap();
                self.write_in_place(text[..end].to_owned());
            }
            8 => self.write_in_place(text + "qouta = 5\n"),
            _ => {
                self.text = None;
                let _ = fs::remove_file(self.target());
            }
        }
    }

    fn target(&self) -> PathBuf {
        self.folder.join("..data").join("rules.toml")
    }

    fn write_in_place(&mut self, text: String) {
        self.note(&text);
        fs::write(self.target(), &text).unwrap();
        self.text = Some(text);
    }

    fn rename_over(&mut self, text: String) {
        self.note(&text);
        let other = self.folder.join("other");
        fs::write(&other, &text).unwrap();
        fs::rename(other, self.target()).unwrap();
        self.text = Some(text);
    }

    /// Moves the link of the folder, as Kubernetes does.
    fn swap(&mut self, text: String) {
        self.note(&text);
        let version = format!("..{}", self.edit);
        fs::create_dir(self.folder.join(&version)).unwrap();
        fs::write(self.folder.join(&version).join("rules.toml"), &text).unwrap();
        symlink(&version, self.folder.join("..next")).unwrap();
        fs::rename(self.folder.join("..next"), self.folder.join("..data")).unwrap();
        self.text = Some(text);
    }

    /// What every server shows once it has seen the file: the limits, or the error.
    fn expected(&mut self) -> Result<u64, String> {
        let Some(text) = self.text.clone() else { return Err("No such file".to_owned()) };
        let registry = Registry::new().cost("cost", |_| 1).cost("nothing", |_| 0);
        match RuleFile::from_toml(&text).and_then(|file| registry.rules(&file)) {
            Ok(_) => Ok(self.edit),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("line"), "{error}");
                Err(error)
            }
        }
    }
}

/// Asks until it is over. Returns how many answers had which status.
async fn ask(n: u64, addresses: Arc<[SocketAddr]>, is_over: Arc<AtomicBool>) -> BTreeMap<u16, u64> {
    let (client, mut random) = (reqwest::Client::new(), Random::new(100 + n));
    let mut answers = BTreeMap::new();
    while !is_over.load(Ordering::Relaxed) {
        let to = random.one_of(&addresses);
        let request = client.get(format!("http://{to}/")).header("x-cost", random.below(3) + 1);
        let status = request.send().await.expect("no request is dropped").status().as_u16();
        *answers.entry(status).or_default() += 1;
        sleep(Duration::from_millis(random.below(8))).await;
    }
    answers
}

/// Waits until all servers show what the file says. Returns how long it took.
#[expect(clippy::disallowed_methods, reason = "the time of a test, not of a decision")]
async fn all_show(processes: &[Process], expected: &Result<u64, String>) -> Duration {
    let start = Instant::now();
    for (n, process) in processes.iter().enumerate() {
        loop {
            let (status, metrics) = (process.get("/status").await, process.get("/metrics").await);
            let is_invalid =
                metrics.lines().any(|line| line.starts_with("tollgate_rules_error{") && line.ends_with(" 1"));
            let shows = match expected {
                Err(error) => is_invalid && status.contains(&format!("{error:?}")[1..error.len()]),
                Ok(edit) => {
                    let limit = format!("tollgate_policy_limit{{policy=\"edit\"}} {edit}");
                    !is_invalid && status.contains("error: None") && metrics.lines().any(|line| line == limit)
                }
            };
            if shows {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "server {n} shows {status}, not {expected:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
    start.elapsed()
}

fn work_time() -> Duration {
    Duration::from_secs(short_or_long(10, 30))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the time of a test, not of a decision")]
async fn a_fleet_decides_each_request_by_the_rules_of_its_edit() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let mut editor = Editor::new(folder.path());
    let processes: Vec<Process> =
        (0..SERVERS).map(|n| Process::start(folder.path(), n, &redis.url())).collect();
    let addresses: Arc<[SocketAddr]> = processes.iter().map(|process| process.address).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: JoinSet<_> =
        (0..CLIENTS).map(|n| ask(n, Arc::clone(&addresses), Arc::clone(&is_over))).collect();

    let (start, mut invalid, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while start.elapsed() < work_time() {
        // Most are replaced before any server sees them.
        for _ in 0..editor.random.below(80) {
            editor.edit();
            sleep(Duration::from_millis(editor.random.below(8))).await;
        }
        let expected = editor.expected();
        longest = longest.max(all_show(&processes, &expected).await);
        if let Err(error) = expected {
            invalid += 1;
            for n in 0..SERVERS {
                let log = fs::read_to_string(folder.path().join(format!("log-{n}"))).unwrap();
                assert!(log.contains(&error), "log of server {n} lacks {error:?}");
            }
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let answers = timeout(Duration::from_secs(60), clients.join_all()).await.expect("all clients end");
    let mut all: BTreeMap<u16, u64> = BTreeMap::new();
    for (status, count) in answers.into_iter().flatten() {
        *all.entry(status).or_default() += count;
    }
    assert!(all.keys().all(|status| [200, 429].contains(status)), "{all:?}");

    let journal = Journal::read((0..SERVERS).map(|n| folder.path().join(format!("journal-{n}"))));
    let checked = journal.check(&editor.limits);
    println!(
        "{} edits, {invalid} invalid ones waited for, shown after at most {longest:?}, answers {all:?}, {checked}",
        editor.edit
    );
    assert_eq!(journal.len() as u64, all.values().sum::<u64>());
}
