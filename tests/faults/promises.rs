//! What each policy promises under each fault, and the table of results.

use std::time::Duration;

use tollgate::store::ErrorKind;
use tollgate::store::Source;
use tollgate_tests::Way as Through;

use crate::faults::caller::{Seen, Way, median};
use crate::faults::fault::{Effect, Fault};
use crate::faults::policy::{Instead, SHARE};
use crate::faults::run::{Cell, LIMIT, Row, policy};

/// How much longer than its timeout a request may take, in addition to the lateness of sleeping
/// tasks. On a busy machine some requests take longer.
const SLACK: Duration = Duration::from_millis(10);

/// The tasks that a request waits for, each of which may be late: its caller, the connection, the
/// lane and the timer.
const STEPS: u32 = 4;

/// How many of a hundred requests must be in time.
const IN_TIME: usize = 90;

impl Row {
    /// All broken promises.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.cells.iter().flat_map(|cell| complaints(self, cell)).collect()
    }

    /// Lines of the table.
    pub(crate) fn lines(&self) -> String {
        let way = if self.way == Way::Sockets { ", over axum" } else { "" };
        let name = format!("{}{way}", self.fault.name());
        self.cells.iter().map(|cell| line(&name, self, cell)).collect()
    }
}

/// "Spared" requests met an open circuit. "Back" is the time from a fault's end to the store's
/// first decision, and from the probe that found it. "Late" is the lateness of sleeping tasks.
pub(crate) fn head() -> String {
    let names = [
        "allowed",
        "denied",
        "refused",
        "in time %",
        "slowest ms",
        "over",
        "spared",
        "spared µs",
        "opened",
        "back ms",
        "of probe ms",
        "timeouts",
        "unavailable",
        "misconfigured",
        "late ms",
    ];
    let names: String = names.iter().map(|name| format!(" {name:>WIDTH$}")).collect();
    format!("\n{:<40} {:<23} requests{names}\n", "fault", "policy")
}

fn line(name: &str, row: &Row, cell: &Cell) -> String {
    let status = |status| count(cell, |seen| seen.status == status).to_string();
    let failed = |kind| cell.heard.failed(kind).to_string();
    let millis = |time: Duration| time.as_millis().to_string();
    let slowest = cell.seen.iter().map(|seen| seen.took).max().unwrap_or_default();
    let spared = cell.heard.failed(ErrorKind::CircuitOpen);
    let at_once = cell.seen.iter().filter(|seen| seen.at_once).map(|seen| seen.took).collect::<Vec<_>>();
    let is_known = spared > 0 && row.way == Way::InProcess;
    let spared_micros = if is_known { median(at_once).as_micros().to_string() } else { none() };
    let figures = [
        status(200),
        status(429),
        status(503),
        percent_within(cell, row.fault.timeout() + SLACK).to_string(),
        millis(slowest),
        over(cell).to_string(),
        spared.to_string(),
        spared_micros,
        cell.heard.opened().to_string(),
        millis(cell.back_after),
        cell.back_after_probe.map_or_else(none, millis),
        failed(ErrorKind::Timeout),
        failed(ErrorKind::Unavailable),
        failed(ErrorKind::Misconfigured),
        millis(row.lateness),
    ];
    let figures: String = figures.iter().map(|figure| format!(" {figure:>WIDTH$}")).collect();
    format!("{name:<40} {:<23} {:>8}{figures}\n", cell.guard.to_string(), cell.seen.len())
}

fn none() -> String {
    "-".to_owned()
}

/// A column of the table.
const WIDTH: usize = 9;

/// How many requests of ada passed beyond the limit.
fn over(cell: &Cell) -> u64 {
    count(cell, |seen| seen.user.is_none() && seen.status == 200).saturating_sub(LIMIT)
}

fn percent_within(cell: &Cell, time: Duration) -> usize {
    let within = cell.seen.iter().filter(|seen| seen.took <= time).count();
    within * 100 / cell.seen.len()
}

fn count(cell: &Cell, is_so: impl Fn(&Seen) -> bool) -> u64 {
    u64::try_from(cell.seen.iter().filter(|seen| is_so(seen)).count()).expect("not that many")
}

fn complaints(row: &Row, cell: &Cell) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut due = |is_so: bool, what: &dyn Fn() -> String| {
        if !is_so {
            complaints.push(format!("{}, {}: {}", row.fault.name(), cell.guard, what()));
        }
    };
    let Cell { guard, heard, .. } = cell;
    let effect = row.fault.effect();
    let fails = effect != Effect::None;
    let during = |seen: &Seen| seen.asked > row.begun && seen.asked < row.ending;

    // All answers are those of a limiter.
    for status in cell.seen.iter().map(|seen| seen.status) {
        let is_known = matches!(status, 200 | 429) || (status == 503 && guard.instead == Instead::Closed);
        due(is_known, &|| format!("a response of status {status}"));
    }
    // Fields and events agree about who decided.
    let by = |source| (count(cell, |seen| seen.by == source), u64::from(heard.decided_by(source)));
    for source in [Source::Store, Source::Fallback, Source::FailurePolicy] {
        let (told, heard) = by(source);
        due(told == heard, &|| format!("{told} by {source:?} as told by fields, {heard} as heard"));
    }
    let instead = count(cell, |seen| seen.by != Source::Store);
    let meant = count(cell, |seen| match guard.instead {
        Instead::Open => seen.by == Source::FailurePolicy && seen.status == 200,
        Instead::Closed => seen.by == Source::FailurePolicy && seen.status == 503,
        Instead::Fallback => seen.by == Source::Fallback && seen.status != 503,
    });
    due(instead == meant, &|| format!("{instead} were not decided by the store, {meant} by the policy"));
    due(fails == (instead > 0), &|| format!("{instead} were not decided by the store"));
    if let Effect::Every(_) = effect {
        let failing = count(cell, |seen| during(seen) && seen.by != Source::Store);
        let all = count(cell, during);
        due(failing * 10 >= all * 9, &|| format!("{failing} of {all} failed while the fault lasted"));
    }
    let kinds = match effect {
        Effect::None => &[],
        Effect::Every(kinds) | Effect::Some(kinds) => kinds,
    };
    for kind in [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::Misconfigured] {
        let count = heard.failed(kind);
        due(count == 0 || kinds.contains(&kind), &|| format!("{count} failures of the kind {kind:?}"));
    }

    // No request waits longer than the timeout.
    let percent = percent_within(cell, row.fault.timeout() + SLACK + STEPS * row.lateness);
    due(percent >= IN_TIME, &|| {
        format!("{percent}% were in time, where sleepers are {:?} late", row.lateness)
    });

    // If a breaker counts the failures, it spares requests the wait.
    let opens = guard.has_breaker && matches!(effect, Effect::Every(_)) && row.fault != Fault::PasswordSet;
    let (opened, spared) = (heard.opened(), u64::from(heard.failed(ErrorKind::CircuitOpen)));
    due(!opens || opened > 0, &|| "the circuit did not open".to_owned());
    let counting = heard.failed(ErrorKind::Timeout) + heard.failed(ErrorKind::Unavailable);
    due(opened == 0 || counting >= 5, &|| format!("it opened {opened} times by {counting} failures"));
    due(guard.has_breaker || spared == 0, &|| format!("{spared} by a breaker that is not there"));
    if row.way == Way::InProcess {
        let at_once = count(cell, |seen| seen.at_once);
        due(at_once >= spared, &|| format!("{spared} met an open circuit, {at_once} did not wait"));
    }
    if opens {
        let all = count(cell, during);
        due(spared * 2 > all, &|| format!("{spared} of {all} met an open circuit"));
    }

    if row.fault.forgets() {
        return complaints;
    }
    // The store has charged each granted request once, and at most the ones whose answers were
    // lost.
    let granted =
        |user| count(cell, |seen| seen.user == user && seen.by == Source::Store && seen.status == 200);
    let unheard = u64::from(heard.failed_when_asked());
    let (granted_to_ada, used) = (granted(None), cell.used_by_ada);
    due((granted_to_ada..=granted_to_ada + unheard).contains(&used), &|| {
        format!("ada was granted {granted_to_ada} and charged {used}, while {unheard} were not heard of")
    });
    let charged_twice = cell.used_by_others.iter().filter(|used| **used > 1).count();
    due(charged_twice == 0, &|| format!("{charged_twice} requests were charged twice"));
    for seen in cell.seen.iter().filter(|seen| seen.by == Source::Store) {
        let used = seen.user.map_or(1, |user| cell.used_by_others[user as usize]);
        due(used == 1, &|| format!("the request of {:?} was granted and charged {used} times", seen.user));
    }
    if row.fault == Fault::Behind(Through::LosesAnswersOfScripts) {
        let charged = cell.used_by_others.iter().sum::<u64>() + used;
        let granted = count(cell, |seen| seen.by == Source::Store && seen.status == 200);
        due(charged > granted, &|| "no reply was lost after a charge".to_owned());
    }

    // How much passed beyond the limit.
    let share = policy().share(SHARE).expect("a share").quota().limit();
    let most = match guard.instead {
        Instead::Closed => 0,
        Instead::Fallback => share,
        Instead::Open => u64::MAX,
    };
    due(over(cell) <= if fails { most } else { 0 }, &|| format!("{} over the limit", over(cell)));
    complaints
}
