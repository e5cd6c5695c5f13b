//! The report, as markdown.

use std::fmt;
use std::time::Duration;

use crate::contenders::{BARE, Contender, OURS};
use crate::measure::Answers;
use crate::scenario::{KeySource, Scenario};
use crate::targets::{Aim, TARGETS, Target};

/// A bare loop this many times slower than the fastest bare loop counts as disturbed.
const DISTURBED: f64 = 1.25;

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) contender: Contender,
    pub(crate) scenario: Scenario,
    pub(crate) threads: usize,
    pub(crate) wall: Option<Duration>,
    /// Of all runs together.
    pub(crate) answers: Answers,
    pub(crate) fields: Vec<String>,
}

impl Line {
    fn is_bare(&self) -> bool {
        self.contender.package == BARE
    }

    /// Whether all requests had the answer that the scenario expects.
    fn as_expected(&self, requests: u64) -> bool {
        let mut demanded = Answers::default();
        match self.scenario.allows() {
            true => demanded.allowed = requests,
            false => demanded.denied = requests,
        }
        self.answers == demanded
    }
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    ours: f64,
    theirs: f64,
    met: bool,
    aim_met: bool,
}

#[derive(Debug)]
pub(crate) struct Report {
    /// Per thread and run.
    requests: u64,
    runs: u64,
    lines: Vec<Line>,
}

impl Report {
    pub(crate) const fn new(requests: u64, runs: u64) -> Report {
        Report { requests, runs, lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, lines: Vec<Line>) {
        self.lines.extend(lines);
    }

    /// The nanoseconds that this limiter's layer adds to a request; `None` if not measured.
    pub(crate) fn added(
        &self,
        package: &str,
        fields: bool,
        scenario: Scenario,
        threads: usize,
    ) -> Option<f64> {
        let line = self.table(scenario, threads).find(|line| {
            line.contender.package == package && line.contender.fields == fields && !line.is_bare()
        })?;
        self.added_by(line)
    }

    fn added_by(&self, line: &Line) -> Option<f64> {
        Some(self.whole(line)? - self.bare_loop(line.contender.key, line.scenario, line.threads)?)
    }

    fn bare_loop(&self, key: KeySource, scenario: Scenario, threads: usize) -> Option<f64> {
        let mut lines = self.table(scenario, threads);
        self.whole(lines.find(|line| line.is_bare() && line.contender.key == key)?)
    }

    /// Nanoseconds per request of a thread, in the best run.
    fn whole(&self, line: &Line) -> Option<f64> {
        Some(line.wall?.as_nanos() as f64 / self.requests as f64)
    }

    fn table(&self, scenario: Scenario, threads: usize) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.scenario == scenario && line.threads == threads)
    }

    /// One line per limiter, of its first scenario.
    fn rows(&self, threads: usize) -> Vec<&Line> {
        let mut rows: Vec<&Line> = Vec::new();
        for line in self.lines.iter().filter(|line| line.threads == threads && !line.is_bare()) {
            let who = |line: &Line| (line.contender.package, line.contender.fields);
            if rows.iter().all(|row| who(row) != who(line)) {
                rows.push(line);
            }
        }
        rows
    }

    fn threads(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.lines.iter().map(|line| line.threads).collect();
        threads.dedup();
        threads
    }

    fn limiters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## The limiters\n")?;
        writeln!(f, "| layer | version | key | header fields of an allowed answer |\n|---|---|---|---|")?;
        for line in self.rows(self.threads()[0]) {
            let Contender { package, key, .. } = line.contender;
            let fields = if line.fields.is_empty() { String::from("none") } else { line.fields.join(", ") };
            writeln!(f, "| {package} | {} | {} | {fields} |", version(package).unwrap_or("?"), key.title())?;
        }
        writeln!(f)
    }

    fn summary(&self, f: &mut fmt::Formatter<'_>, threads: usize) -> fmt::Result {
        writeln!(f, "## {}: what the layer adds to a request\n", threads_title(threads))?;
        write!(f, "| layer | fields |")?;
        Scenario::ALL
            .iter()
            .try_for_each(|scenario| write!(f, " {} (× {}) |", scenario.title(), scenario.yardstick()))?;
        writeln!(f, "\n|---|---|--:|--:|--:|")?;
        for line in self.rows(threads) {
            let Contender { package, fields, .. } = line.contender;
            write!(f, "| {package} | {} |", on_off(fields))?;
            for scenario in Scenario::ALL {
                match self.added(package, fields, scenario, threads) {
                    Some(added) => {
                        let times = self
                            .added(scenario.yardstick(), fields, scenario, threads)
                            .map(|theirs| added / theirs);
                        write!(
                            f,
                            " {} ns{} |",
                            nanos(added),
                            times.map_or_else(String::new, |t| format!(" ({t:.2} ×)"))
                        )?;
                    }
                    None => write!(f, " – |")?,
                }
            }
            writeln!(f)?;
        }
        for key in [KeySource::PeerIp, KeySource::Field] {
            write!(f, "| *the loop itself, key as {}* | |", key.title())?;
            for scenario in Scenario::ALL {
                match self.bare_loop(key, scenario, threads) {
                    Some(whole) => write!(f, " *{} ns* |", nanos(whole))?,
                    None => write!(f, " – |")?,
                }
            }
            writeln!(f)?;
        }
        writeln!(f)?;
        self.disturbed(f, threads)
    }

    /// Reports the scenarios in which the bare loop was slow: it should always be equally fast.
    fn disturbed(&self, f: &mut fmt::Formatter<'_>, threads: usize) -> fmt::Result {
        for scenario in Scenario::ALL {
            let slow = [KeySource::PeerIp, KeySource::Field].into_iter().any(|key| {
                let all =
                    self.lines.iter().filter_map(|line| self.bare_loop(key, line.scenario, line.threads));
                let here = self.bare_loop(key, scenario, threads);
                here.is_some_and(|here| here > DISTURBED * all.fold(f64::INFINITY, f64::min))
            });
            if slow {
                writeln!(
                    f,
                    "**Disturbed: {}.** The loop itself was slow: another process used the processor in every \
                     run, so the figures of that column mean little.\n",
                    scenario.title(),
                )?;
            }
        }
        Ok(())
    }

    fn answers(&self, f: &mut fmt::Formatter<'_>, threads: usize) -> fmt::Result {
        writeln!(f, "### {}: what was answered, all runs together\n", threads_title(threads))?;
        writeln!(f, "| layer | fields | scenario | ns added | allowed | denied | other | as expected |")?;
        writeln!(f, "|---|---|---|--:|--:|--:|--:|---|")?;
        for scenario in Scenario::ALL {
            for line in self.table(scenario, threads).filter(|line| !line.is_bare()) {
                let Contender { package, fields, .. } = line.contender;
                let Answers { allowed, denied, other } = line.answers;
                let added = self.added_by(line).map_or_else(|| String::from("–"), nanos);
                writeln!(
                    f,
                    "| {package} | {} | {} | {added} | {} | {} | {} | {} |",
                    on_off(fields),
                    scenario.title(),
                    grouped(allowed),
                    grouped(denied),
                    grouped(other),
                    if line.as_expected(self.requests * self.runs * threads as u64) {
                        "yes"
                    } else {
                        "**NO**"
                    },
                )?;
            }
        }
        writeln!(f)
    }

    fn targets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## What {OURS} must show\n")?;
        writeln!(f, "| scenario | fields | threads | {OURS} | peer | | ratio | at most | aim | |")?;
        writeln!(f, "|---|---|--:|--:|---|--:|--:|--:|--:|---|")?;
        for threads in self.threads() {
            TARGETS.iter().try_for_each(|target| self.target(f, target, threads))?;
        }
        Ok(())
    }

    /// Whether a target is met; `None` if one of the two was not measured.
    fn standing(&self, target: &Target, threads: usize) -> Option<Standing> {
        let ours = self.added(OURS, target.fields, target.scenario, threads)?;
        let theirs = self.added(target.peer, target.fields, target.scenario, threads)?;
        let aim_met = match target.aim {
            Some(Aim::Times(times)) => ours <= times * theirs,
            Some(Aim::Nanos(nanos)) => ours <= nanos,
            None => false,
        };
        Some(Standing { ours, theirs, met: ours <= target.at_most * theirs, aim_met })
    }

    fn target(&self, f: &mut fmt::Formatter<'_>, target: &Target, threads: usize) -> fmt::Result {
        let Target { scenario, fields, peer, at_most, aim } = *target;
        write!(f, "| {} | {} | {threads} |", scenario.title(), on_off(fields))?;
        let aim = match aim {
            Some(Aim::Times(times)) => format!("{times:.2} ×"),
            Some(Aim::Nanos(aim)) => format!("{} ns", nanos(aim)),
            None => String::from("–"),
        };
        match self.standing(target, threads) {
            Some(standing) => {
                let verdict = match (standing.met, standing.aim_met) {
                    (false, _) => "**not met**",
                    (true, false) => "met",
                    (true, true) => "met, and the aim",
                };
                let (ours, theirs) = (nanos(standing.ours), nanos(standing.theirs));
                let ratio = standing.ours / standing.theirs;
                writeln!(
                    f,
                    " {ours} ns | {peer} | {theirs} ns | {ratio:.2} × | {at_most:.2} × | {aim} | {verdict} |"
                )
            }
            None => writeln!(f, " – | {peer} | – | – | {at_most:.2} × | {aim} | not measured |"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# What a limiter's layer adds to a request, state in memory\n")?;
        let (requests, runs) = (grouped(self.requests), self.runs);
        writeln!(f, "{requests} requests per thread and run; the best of {runs} runs, taken in turn.")?;
        writeln!(f, "Nanoseconds per request of a thread, minus those of the same loop without a layer.")?;
        writeln!(
            f,
            "In brackets: the ratio to the peer in the head of the column, with its fields equally on or off.\n"
        )?;
        self.limiters(f)?;
        for threads in self.threads() {
            self.summary(f, threads)?;
            self.answers(f, threads)?;
        }
        self.targets(f)
    }
}

/// The version of a package in this package's lock file.
pub(crate) fn version(package: &str) -> Option<&'static str> {
    let mut lines = include_str!("../Cargo.lock").lines();
    let name = format!("name = \"{package}\"");
    lines.find(|line| *line == name);
    lines.next().and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

fn threads_title(threads: usize) -> String {
    match threads {
        1 => String::from("One thread"),
        2 => String::from("Two threads"),
        more => format!("{more} threads"),
    }
}

fn on_off(fields: bool) -> &'static str {
    if fields { "on" } else { "off" }
}

fn nanos(value: f64) -> String {
    let sign = if value <= -0.5 { "−" } else { "" };
    format!("{sign}{}", grouped(value.abs().round() as u64))
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
