//! The text after a load.

use std::fmt::{self, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use super::plot::{Plot, seconds};
use super::tally::{Counts, Latency, Tally};
use crate::chart::human;
use humantime::format_rfc3339_millis;

/// How many keys, and how many reasons of failures, are listed.
const TOP: usize = 5;

/// Requests, rates, the busiest keys and latencies. `took` is in microseconds.
pub(crate) fn requests(tally: &Tally, took: u64) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_requests(&mut text, tally, took);
    text
}

fn write_requests(text: &mut String, tally: &Tally, took: u64) -> fmt::Result {
    let total = tally.total();
    let rate = total.all() as f64 / seconds(took.max(1));
    writeln!(text, "{} requests in {:.2} s: {rate:.0} per second", human(total.all()), seconds(took))?;
    for (name, count) in [("allowed", total.allowed), ("denied", total.denied), ("failed", total.failed)] {
        writeln!(text, "  {name:8}{:>12}", human(count))?;
    }
    let mut failures: Vec<_> = tally.failures.iter().collect();
    failures.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    for (reason, times) in failures.iter().take(TOP) {
        writeln!(text, "{:>24} x {}", human(**times), reason.replace(char::is_control, "\u{fffd}"))?;
    }
    if tally.unfinished > 0 {
        writeln!(text, "  {} requests in flight were given up, and are not counted", tally.unfinished)?;
    }
    if tally.keys.len() > 1 {
        write_keys(text, tally)?;
    }
    writeln!(text, "\nlatency, ms       p50        p90        p99      p99.9        max")?;
    write_latency(text, "allowed", &tally.allowed)?;
    write_latency(text, "denied", &tally.denied)
}

fn write_keys(text: &mut String, tally: &Tally) -> fmt::Result {
    let mut keys: Vec<_> = tally.keys.iter().collect();
    keys.sort_by(|(a, of_a), (b, of_b)| of_b.all().cmp(&of_a.all()).then(a.cmp(b)));
    writeln!(text, "\nkey             allowed       denied       failed")?;
    for (key, Counts { allowed, denied, failed }) in
        keys.iter().take(TOP).map(|(key, counts)| (*key, **counts))
    {
        let [allowed, denied, failed] = [allowed, denied, failed].map(human);
        writeln!(text, "{key:<10}{allowed:>13}{denied:>13}{failed:>13}")?;
    }
    match keys.len().saturating_sub(TOP) {
        0 => Ok(()),
        more => writeln!(text, "and {} other keys with fewer requests", human(more as u64)),
    }
}

fn write_latency(text: &mut String, name: &str, Latency(times): &Latency) -> fmt::Result {
    if times.is_empty() {
        return Ok(());
    }
    write!(text, "{name:<10}")?;
    for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
        write!(text, "{:>11.3}", times.value_at_quantile(quantile) as f64 / 1e3)?;
    }
    writeln!(text)
}

/// What was admitted in the windows of the busiest key.
pub(crate) fn windows(plot: &Plot<'_>) -> String {
    let (length, key, worst) = (seconds(plot.length), plot.busiest.key, plot.busiest.worst);
    let threshold = plot.threshold.map(|threshold| format!(", threshold {}", human(threshold)));
    format!(
        "\nadmitted in windows of {length} s, key {key}: at most {}{}\n\
         (a row shows the most of the windows that end in it)\n{}",
        human(worst.admitted),
        threshold.unwrap_or_default(),
        plot.rows()
    )
}

/// The line that names the window with the most, if it exceeds the threshold. `over` is the number
/// of keys with such a window.
pub(crate) fn excess(plot: &Plot<'_>, started: u64, over: usize) -> Option<String> {
    let (key, worst) = (plot.busiest.key, plot.busiest.worst);
    let threshold = plot.threshold.filter(|threshold| worst.admitted > *threshold)?;
    let others = match over {
        1 => String::new(),
        over => format!("; {} keys exceeded it", human(over as u64)),
    };
    Some(format!(
        "the window from {:.3} s to {:.3} s ({} to {}) admitted {} requests of key {key}, over the threshold of \
         {threshold}{others}",
        since(worst.start, started),
        since(worst.end, started),
        utc(worst.start),
        utc(worst.end),
        worst.admitted,
    ))
}

/// Seconds since the start of the load. A window may begin before it.
fn since(time: u64, started: u64) -> f64 {
    if time < started { -seconds(started - time) } else { seconds(time - started) }
}

fn utc(time: u64) -> String {
    format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(time)).to_string()
}
