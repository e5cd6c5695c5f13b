//! The chart of a time series.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use tollgate::usage::MinuteUsage;

use crate::chart::{bar, human};

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

/// Returns the rest of the first line, and a line for each row.
pub(super) fn chart(minutes: &[MinuteUsage]) -> String {
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

/// Date, hour and minute.
fn utc(minute: u64) -> String {
    let text = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(minute * 60)).to_string();
    text.replace('T', " ").chars().take("2026-11-23 20:17".len()).collect()
}
