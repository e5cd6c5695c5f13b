//! `tollgate usage series`: the chart of a time series.

use std::fmt::Write as _;

use tollgate::usage::top_keys::{MinuteUsage, UsageOf};
use tollgate_core::Key;

use super::args::{SeriesArgs, failed};
use crate::chart::{bar, human, utc};
use crate::output::printable;
use crate::values;

/// The most rows, but for the first and the last one, which may cover less time.
const ROWS: u64 = 60;

/// How many minutes a row may cover. The rows of each begin at round times.
const SPANS: [u64; 9] = [1, 2, 5, 10, 15, 30, 60, 120, 180];

/// Several minutes.
#[derive(Debug)]
struct Row {
    /// In minutes since the epoch.
    start: u64,
    allowed: u64,
    denied: u64,
}

/// The chart of a policy or a key.
pub(super) async fn chart_of(args: &SeriesArgs) -> Result<String, String> {
    let key = args.subject.key.as_deref().map(key).transpose()?;
    let policy = args.subject.policy.as_deref().unwrap_or_default();
    let (of, name) = match &key {
        Some((key, text)) => (UsageOf::Key(key), format!("key {text}")),
        None => (UsageOf::Policy(policy), format!("policy {policy}")),
    };
    let minutes = args.source.usage().await?.series(of, args.source.last).await.map_err(failed)?;
    if minutes.iter().all(|minute| minute.allowed == 0 && minute.denied == 0) {
        return Ok(args.source.nothing(&format!("counted of {}", printable(&name))));
    }
    Ok(format!("{}{}", printable(&name), chart(&minutes)))
}

/// Parses a key, and returns it with its text.
fn key(text: &str) -> Result<(Key, String), String> {
    if text.starts_with('~') {
        return Err(format!("{text} is a digest: give the key itself, and the --secret if there is one"));
    }
    let key = values::key(text)?;
    let text = key.to_readable();
    Ok((key, text))
}

/// Returns the rest of the first line, and a line for each row.
fn chart(minutes: &[MinuteUsage]) -> String {
    let count = u64::try_from(minutes.len()).unwrap_or(u64::MAX);
    let span = SPANS.into_iter().find(|span| span * ROWS >= count).unwrap_or(SPANS[SPANS.len() - 1]);
    let rows = rows(minutes, span);
    let most = rows.iter().map(|row| row.allowed.saturating_add(row.denied)).max().unwrap_or(0);
    let each = if span == 1 { "minute".to_owned() } else { format!("{span} minutes") };
    let mut text = format!(
        ", each {each}\n{:16}  {:>11}  {:>11}  █ allowed ░ denied\n",
        "from (UTC)", "allowed", "denied"
    );
    for Row { start, allowed, denied } in &rows {
        let bar = bar(*allowed, *denied, most);
        let [allowed, denied] = [*allowed, *denied].map(human);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}  {allowed:>11}  {denied:>11} │{bar}", utc(*start));
    }
    let sum = |part: fn(&Row) -> u64| human(rows.iter().map(part).fold(0, u64::saturating_add));
    let (allowed, denied) = (sum(|row| row.allowed), sum(|row| row.denied));
    let _ = writeln!(text, "{:16}  {allowed:>11}  {denied:>11}", "in all");
    text
}

fn rows(minutes: &[MinuteUsage], span: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for minute in minutes {
        let start = minute.start.as_micros() / 60_000_000 / span * span;
        if rows.last().is_none_or(|row| row.start != start) {
            rows.push(Row { start, allowed: 0, denied: 0 });
        }
        if let Some(row) = rows.last_mut() {
            row.allowed = row.allowed.saturating_add(minute.allowed);
            row.denied = row.denied.saturating_add(minute.denied);
        }
    }
    rows
}
