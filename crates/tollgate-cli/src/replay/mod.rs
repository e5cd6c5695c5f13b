//! `tollgate replay`: what rules would have decided about the requests in a log.

mod access;
mod counts;
mod differences;
mod line;
mod log;
mod rules;

use std::mem;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tollgate::store::Status;
use tollgate::{Head, ManualClock, MemoryStore, Outcome, Policy, RequestLimiter, Rule, Timestamp};

use self::counts::ReplayCounts;
use self::differences::Differences;
use self::line::{LogLine, LoggedDecision};
use self::log::SortedLog;
use crate::chart::human;
use crate::output::{print, printable};
use crate::rules::RulesText;

pub(crate) const AFTER_HELP: &str = "\
Each request is charged to all rules that apply to it, or to none, at its time in the log, in an
empty store in memory. A rule that needs what the log lacks is skipped.

Example:
  tollgate replay access.log --rules rules.toml";

/// The fewest and the most keys of the store. A million take 60 MB, once there are so many.
const KEYS: (usize, usize) = (1_000_000, 20_000_000);

/// By how much a time in a log may differ from that of the decision.
const INEXACT: Duration = Duration::from_millis(1);

/// `tollgate replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The log: JSON lines as the playground writes them, or the common or combined log format
    #[arg(value_name = "LOG")]
    log: PathBuf,

    /// The rules, in TOML or JSON (*.json)
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,

    /// How many of the most refused keys are shown, and of the verdicts that differ from the log
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

/// Replays the log, and prints the tables. Errors are one line.
pub(crate) async fn run(args: &ReplayArgs) -> Result<ExitCode, String> {
    // On standard error, if that is a terminal.
    let style = ProgressStyle::with_template("{elapsed} {bar:40} {percent} %, {eta} left");
    let progress = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let in_rules = |error: String| format!("--rules: {}: {error}", args.rules.display());
    let in_log = |error: String| {
        progress.finish_and_clear();
        format!("{}: {error}", args.log.display())
    };
    let read = RulesText::read(&args.rules).and_then(|text| text.rules());
    let file = read.map_err(|error| format!("--rules: {error}"))?;
    let log = SortedLog::open(&args.log, progress.clone()).map_err(in_log)?;
    let (rules, skipped) = rules::choose(&file, &log);
    let name = |(rule, reason): &(String, String)| format!("rule {rule:?} is skipped: {reason}");
    let mut notes: Vec<String> = skipped.iter().map(name).collect();
    if rules.is_empty() {
        return Err(in_rules(notes.join("; ")));
    }
    if log.broken > 0 {
        notes.push(format!("{} lines cannot be read, first {}", human(log.broken), log.first_broken));
    }
    if log.dropped > 0 {
        notes.push(format!(
            "{} decisions have no line: the log did not take them in time",
            human(log.dropped)
        ));
    }
    if log.in_shadow > 0 {
        let why = "lines are left out: rules in shadow decided, and what they counted is not replayed";
        notes.push(format!("{} {why}", human(log.in_shadow)));
    }
    let limiter = RequestLimiter::try_new(rules.clone()).map_err(|error| in_rules(error.to_string()))?;
    let tables = replay(log, &rules, limiter, &skipped, args.top, &mut notes).await.map_err(in_log)?;
    progress.finish_and_clear();
    let notes: String = notes.iter().map(|note| printable(note) + "\n").collect();
    print(&format!("{notes}{tables}")).map(|()| ExitCode::SUCCESS)
}

/// Decides about each request of the log as a layer with these rules does. Returns the tables.
async fn replay(
    log: SortedLog,
    rules: &[Rule],
    limiter: RequestLimiter,
    skipped: &[(String, String)],
    top: usize,
    notes: &mut Vec<String>,
) -> Result<String, String> {
    let clock = ManualClock::new(Timestamp::EPOCH);
    // Keys are spread at random, so a store needs room to spare.
    let keys = log.lines.len().saturating_mul(rules.len() * 2).clamp(KEYS.0, KEYS.1);
    let store = MemoryStore::builder().max_keys(keys).clock(&clock).build();
    // What rules in shadow decide about the request, and whether they would refuse it.
    let in_shadow = Arc::<Mutex<Vec<(String, bool)>>>::default();
    let seen = Arc::clone(&in_shadow);
    let limiter = limiter.store(store.clone()).observe(move |decision| {
        let refuses = match decision.outcome() {
            Outcome::ShadowAllowed => false,
            Outcome::ShadowDenied => true,
            _ => return,
        };
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((decision.policy().name().to_owned(), refuses));
    });
    let (is_json, mut left_out) = (log.is_json, 0);
    let mut counts = ReplayCounts::new(rules.iter().map(|rule| rule.policy().name()));
    let mut differences = Differences::new(rules, &log, top);
    for line in log.requests() {
        let (number, LogLine { time, request }) = line?;
        let logged = request.extensions().get::<LoggedDecision>();
        let is_refused_in_log = logged.is_some_and(|logged| !logged.allowed);
        let is_skipped = |rule: &str| skipped.iter().any(|(name, _)| name == rule);
        if is_refused_in_log && logged.into_iter().flat_map(LoggedDecision::refused_by).all(is_skipped) {
            left_out += 1;
            continue;
        }
        clock.set(time);
        let head = Head::from(&request);
        let decided = limiter.check(&head).await;
        let (report, refused_by) = match &decided {
            Ok(permit) => (permit.report(), Vec::new()),
            Err(denial) => (denial.report(), denial.violated().collect()),
        };
        counts.add(counts.rules(), time, decided.is_err(), is_refused_in_log);
        let in_shadow = mem::take(&mut *in_shadow.lock().unwrap_or_else(PoisonError::into_inner));
        for (at, rule) in rules.iter().enumerate() {
            let name = rule.policy().name();
            let in_shadow = in_shadow.iter().find(|(of_rule, _)| of_rule == name);
            if in_shadow.is_some() || report.policies().any(|policy| policy.name() == name) {
                let check = logged.and_then(|logged| logged.check(name));
                let refuses = in_shadow.map_or_else(|| refused_by.contains(&name), |(_, refuses)| *refuses);
                counts.add(at, time, refuses, check.is_some_and(|check| check.denied));
                if let (true, Some(key)) = (refuses, rule.key(&head)) {
                    counts.add_key(at, key);
                }
            }
        }
        if let Some(logged) = logged {
            let needs_more = |(policy, status): (&Policy, &Status)| {
                logged.check(policy.name()).is_some_and(|check| check.cost > status.remaining())
            };
            let is_at_limit = match &decided {
                Ok(_) => report.iter().any(needs_more),
                Err(denial) => denial.retry_after().is_some_and(|wait| wait <= INEXACT),
            };
            differences.compare(number, time, logged, &refused_by, is_at_limit);
        }
    }
    if left_out > 0 {
        let why = "requests are left out: in the log, a skipped rule or none refused them";
        notes.push(format!("{} {why}", human(left_out)));
    }
    let (evicted, shared) = (human(store.evictions()), human(store.overflows()));
    if store.evictions() + store.overflows() > 0 {
        notes.push(format!("too many keys: {evicted} were evicted, {shared} requests shared quotas"));
    }
    let differences = if is_json { format!("\n{}", differences.tables()) } else { String::new() };
    Ok(format!("{}\n{}{differences}", counts.hours(is_json), counts.keys(top)))
}
