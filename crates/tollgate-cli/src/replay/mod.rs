//! `tollgate replay`: what rules would have decided about the requests in a log.

mod access;
mod counts;
mod differences;
mod line;
mod log;
mod rules;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tollgate::{Head, ManualClock, MemoryStore, RequestLimiter, Rule, Timestamp};

use self::counts::ReplayCounts;
use self::differences::Differences;
use self::line::{LogLine, LoggedDecision};
use self::log::{LinePlace, SortedLog};
use crate::chart::human;
use crate::output::{print, printable};

pub(crate) const AFTER_HELP: &str = "\
Each request is charged to all rules that apply to it, or to none, at its time in the log, in an
empty store in memory. A rule that needs what the log lacks is skipped.

Example:
  tollgate replay access.log --rules rules.toml";

/// The fewest and the most keys of the store. A million take 60 MB, once there are so many.
const KEYS: (usize, usize) = (1_000_000, 20_000_000);

/// `tollgate replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The log: JSON lines as the playground writes them, or the common or combined log format
    #[arg(value_name = "LOG")]
    log: PathBuf,

    /// The rules, in TOML or JSON (*.json)
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,

    /// How many of the most refused keys are shown, and of the verdicts that are not those of the log
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

/// Replays the log, and prints the tables. Errors are one line.
pub(crate) async fn run(args: &ReplayArgs) -> Result<ExitCode, String> {
    let in_rules = |error: String| format!("--rules: {}: {error}", args.rules.display());
    let in_log = |error: String| format!("{}: {error}", args.log.display());
    let file = rules::open(&args.rules).map_err(in_rules)?;
    let progress = progress();
    let log = SortedLog::open(&args.log, progress.clone()).map_err(in_log)?;
    let (rules, skipped) = rules::choose(&file, &log);
    let mut notes: Vec<String> =
        skipped.iter().map(|(rule, reason)| format!("rule {rule:?} is skipped: {reason}")).collect();
    if rules.is_empty() {
        return Err(in_rules(notes.join("; ")));
    }
    if log.broken > 0 {
        notes.push(format!("{} lines cannot be read, first {}", human(log.broken), log.first_broken));
    }
    let is_json = log.is_json;
    let skipped = skipped.into_iter().map(|(rule, _)| rule).collect();
    let mut replay = Replay::new(rules, skipped, &log, args.top).map_err(in_rules)?;
    for line in log.requests() {
        let (number, line) = line.map_err(in_log)?;
        replay.decide(number, &line).await;
    }
    progress.finish_and_clear();
    notes.extend(replay.notes());
    let notes: String = notes.iter().map(|note| printable(note) + "\n").collect();
    print(&format!("{notes}{}", replay.tables(args.top, is_json)));
    Ok(ExitCode::SUCCESS)
}

/// On standard error, if that is a terminal.
fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed} {bar:40} {percent} %, {eta} left");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

struct Replay {
    rules: Vec<Rule>,
    /// The names of the other rules.
    skipped: Vec<String>,
    limiter: RequestLimiter,
    clock: ManualClock,
    store: MemoryStore,
    counts: ReplayCounts,
    differences: Differences,
    /// Requests that the log refused, and not by one of the rules.
    left_out: u64,
}

impl Replay {
    fn new(rules: Vec<Rule>, skipped: Vec<String>, log: &SortedLog, top: usize) -> Result<Replay, String> {
        let clock = ManualClock::new(Timestamp::EPOCH);
        // Keys are spread at random, so a store needs room to spare.
        let keys = log.lines.len().saturating_mul(rules.len() * 2).clamp(KEYS.0, KEYS.1);
        let store = MemoryStore::builder().max_keys(keys).clock(&clock).build();
        let limiter = RequestLimiter::try_new(rules.clone()).map_err(|error| error.to_string())?;
        let limiter = limiter.store(store.clone());
        let began = log.lines.first().map(LinePlace::time).unwrap_or_default();
        let differences = Differences::new(&rules, log.version, began, top);
        let counts = ReplayCounts::default();
        Ok(Replay { rules, skipped, limiter, clock, store, counts, differences, left_out: 0 })
    }

    /// Decides about a request as a layer with these rules does.
    async fn decide(&mut self, number: u64, LogLine { time, request }: &LogLine) {
        let logged = request.extensions().get::<LoggedDecision>();
        let mut refused_in_log = logged.into_iter().flat_map(LoggedDecision::refused_by);
        let is_skipped = |rule: &str| self.skipped.iter().any(|skipped| skipped == rule);
        if logged.is_some_and(|logged| !logged.allowed) && refused_in_log.all(is_skipped) {
            self.left_out += 1;
            return;
        }
        let head = Head::from(request);
        self.clock.set(*time);
        let decided = self.limiter.check(&head).await;
        let (report, refused_by) = match &decided {
            Ok(permit) => (permit.report(), Vec::new()),
            Err(denial) => (denial.report(), denial.violated().collect()),
        };
        let applies = |name: &str| report.policies().any(|policy| policy.name() == name);
        for (at, rule) in self.rules.iter().enumerate().filter(|(_, rule)| applies(rule.policy().name())) {
            let name = rule.policy().name();
            let is_refused_in_log =
                logged.and_then(|logged| logged.check(name)).is_some_and(|check| check.denied);
            self.counts.add_to(at, *time, refused_by.contains(&name), is_refused_in_log);
            if let (true, Some(key)) = (refused_by.contains(&name), rule.key(&head)) {
                self.counts.add_refused_key(at, key);
            }
        }
        self.counts.add(decided.is_err(), logged.is_some_and(|logged| !logged.allowed));
        if let Some(logged) = logged {
            self.differences.compare(number, *time, logged, &refused_by);
        }
    }

    /// What a reader of the tables has to know.
    fn notes(&self) -> impl Iterator<Item = String> {
        let (evicted, shared) = (self.store.evictions(), self.store.overflows());
        let left_out = (self.left_out > 0).then(|| {
            format!(
                "{} requests are left out: in the log, a skipped rule or none refused them",
                human(self.left_out)
            )
        });
        let too_many = (evicted + shared > 0).then(|| {
            format!(
                "too many keys: {} were evicted, {} requests shared quotas",
                human(evicted),
                human(shared)
            )
        });
        left_out.into_iter().chain(too_many)
    }

    fn tables(&self, top: usize, is_json: bool) -> String {
        let hours = self.counts.hours(&self.rules, is_json);
        let keys = self.counts.keys(&self.rules, top).map(|keys| format!("\n{keys}"));
        let differences = is_json.then(|| format!("\n{}", self.differences.tables()));
        [Some(hours), keys, differences].into_iter().flatten().collect()
    }
}
