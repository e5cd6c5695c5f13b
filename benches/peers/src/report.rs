//! The report, as markdown.

use std::fmt;

use crate::contenders::{BARE, Contender, OURS, Part};
use crate::measure::Answers;
use crate::scenario::Scenario;
use crate::summary::{Summary, times, two_digits};
use crate::targets::{Aim, TARGETS, Target};

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) contender: Contender,
    /// Nanoseconds per request of a thread, in each run.
    pub(crate) runs: Vec<f64>,
    /// Of all runs together.
    pub(crate) answers: Answers,
    /// The header fields of an answer.
    pub(crate) fields: Vec<String>,
}

impl Line {
    fn is_bare(&self) -> bool {
        self.contender.package == BARE
    }
}

/// All limiters in one scenario.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) scenario: Scenario,
    pub(crate) threads: usize,
    pub(crate) lines: Vec<Line>,
}

impl Table {
    pub(crate) fn new(
        scenario: Scenario,
        threads: usize,
        lineup: impl IntoIterator<Item = Contender>,
    ) -> Table {
        let line =
            |contender| Line { contender, runs: Vec::new(), answers: Answers::default(), fields: Vec::new() };
        Table { scenario, threads, lines: lineup.into_iter().map(line).collect() }
    }

    fn limiters(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| !line.is_bare())
    }

    fn line(&self, package: &str, part: Part) -> Option<&Line> {
        self.limiters().find(|line| line.contender.package == package && line.contender.part == part)
    }

    /// The nanoseconds that a limiter adds to the loop, in each run.
    fn added(&self, line: &Line) -> Vec<f64> {
        let key = line.contender.key;
        let bare = self.lines.iter().find(|bare| bare.is_bare() && bare.contender.key == key);
        let bare = bare.map_or(&[][..], |bare| &bare.runs);
        line.runs.iter().zip(bare).map(|(whole, bare)| whole - bare).collect()
    }

    /// What a limiter adds as a multiple of what its yardstick adds in the same run.
    fn ratio(&self, line: &Line) -> Option<Summary> {
        let Contender { part, .. } = line.contender;
        let same_part = if part.has_layer() { part } else { Part::Primitive };
        let yardstick = self.line(part.yardstick(self.scenario), same_part)?;
        Summary::of_ratios(&self.added(line), &self.added(yardstick))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, expected: u64) -> fmt::Result {
        writeln!(f, "### {}, {}\n", threads_title(self.threads), self.scenario.title())?;
        writeln!(
            f,
            "| | | ns added | range | ratio (range) | to | allowed | denied | other | as expected |"
        )?;
        writeln!(f, "|---|---|--:|--:|--:|---|--:|--:|--:|---|")?;
        for line in self.limiters() {
            let Contender { package, part, .. } = line.contender;
            let added = Summary::of(self.added(line));
            let Answers { allowed, denied, other } = line.answers;
            let decided = if self.scenario.allows() { allowed } else { denied };
            let as_expected = decided == expected && allowed + denied + other == expected;
            writeln!(
                f,
                "| {package} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                part.title(),
                or_dash(added.map(|added| nanos(added.median))),
                or_dash(added.map(|added| added.range(nanos))),
                or_dash(self.ratio(line).map(times)),
                part.yardstick(self.scenario),
                grouped(allowed),
                grouped(denied),
                grouped(other),
                if as_expected { "yes" } else { "**NO**" },
            )?;
        }
        for line in self.lines.iter().filter(|line| line.is_bare()) {
            let whole = Summary::of(line.runs.iter().copied());
            writeln!(
                f,
                "| *the loop itself, key as {}* | | *{}* | *{}* | | | | | | |",
                line.contender.key.title(),
                or_dash(whole.map(|whole| nanos(whole.median))),
                or_dash(whole.map(|whole| whole.range(nanos))),
            )?;
        }
        writeln!(f)
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    /// Per thread and round.
    pub(crate) requests: u64,
    /// Per run.
    pub(crate) rounds: u64,
    pub(crate) runs: u64,
    pub(crate) tables: Vec<Table>,
}

impl Report {
    fn table(&self, scenario: Scenario, threads: usize) -> Option<&Table> {
        self.tables.iter().find(|table| table.scenario == scenario && table.threads == threads)
    }

    fn threads(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.tables.iter().map(|table| table.threads).collect();
        threads.dedup();
        threads
    }

    /// Each limiter and part once. Tables of denials do not have all of them.
    fn rows(&self) -> impl Iterator<Item = &Line> {
        let allowed = self.tables.iter().find(|table| table.scenario.allows()).or(self.tables.first());
        allowed.into_iter().flat_map(Table::limiters)
    }

    fn limiters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## The limiters\n")?;
        writeln!(f, "| | version | | key | header fields of an allowed answer |\n|---|---|---|---|---|")?;
        for line in self.rows() {
            let Contender { package, part, key, .. } = line.contender;
            let fields = if line.fields.is_empty() { String::from("none") } else { line.fields.join(", ") };
            let version = version(package).unwrap_or("?");
            writeln!(f, "| {package} | {version} | {} | {} | {fields} |", part.title(), key.title())?;
        }
        writeln!(f)
    }

    /// Layers and primitives apart, since a layer does more.
    fn summary(&self, f: &mut fmt::Formatter<'_>, threads: usize, of_layers: bool) -> fmt::Result {
        let what = if of_layers { "what a layer adds" } else { "what a decision without a layer takes" };
        writeln!(f, "## {}: {what}\n", threads_title(threads))?;
        write!(f, "| |")?;
        for scenario in Scenario::ALL {
            let part = if of_layers { Part::Layer } else { Part::Primitive };
            write!(f, " {}, ratio to {} |", scenario.title(), part.yardstick(scenario))?;
        }
        writeln!(f, "\n|---|--:|--:|--:|")?;
        for row in self.rows().filter(|row| row.contender.part.has_layer() == of_layers) {
            let Contender { package, part, .. } = row.contender;
            write!(f, "| {package}, {} |", part.title())?;
            for scenario in Scenario::ALL {
                let cell = self.table(scenario, threads).and_then(|table| {
                    let line = table.line(package, part)?;
                    let added = nanos(Summary::of(table.added(line))?.median);
                    let ratio =
                        table.ratio(line).map_or_else(String::new, |ratio| format!(", {}", times(ratio)));
                    Some(format!("{added} ns{ratio}"))
                });
                write!(f, " {} |", or_dash(cell))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }

    fn targets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## What {OURS} must show\n")?;
        writeln!(f, "| scenario | | threads | {OURS} | peer | | ratio | at most | aim | |")?;
        writeln!(f, "|---|---|--:|--:|---|--:|--:|--:|--:|---|")?;
        for threads in self.threads() {
            TARGETS.iter().try_for_each(|target| self.target(f, target, threads))?;
        }
        Ok(())
    }

    fn target(&self, f: &mut fmt::Formatter<'_>, target: &Target, threads: usize) -> fmt::Result {
        let Target { scenario, part, at_most, aim } = *target;
        let peer = part.yardstick(scenario);
        let shown = self.table(scenario, threads).and_then(|table| {
            let (ours, theirs) = (table.line(OURS, part)?, table.line(peer, part)?);
            let median = |line| Summary::of(table.added(line)).map(|added| added.median);
            Some((median(ours)?, median(theirs)?, table.ratio(ours)?.median))
        });
        let aim_is_met = |ours: f64, ratio: f64| match aim {
            Some(Aim::Times(times)) => ratio <= times,
            Some(Aim::Nanos(nanos)) => ours <= nanos,
            None => false,
        };
        let verdict = match shown {
            None => "not measured",
            Some((_, _, ratio)) if ratio > at_most => "**not met**",
            Some((ours, _, ratio)) if aim_is_met(ours, ratio) => "met, and the aim",
            Some(_) => "met",
        };
        let aim = aim.map(|aim| match aim {
            Aim::Times(times) => format!("{times:.2} ×"),
            Aim::Nanos(aim) => format!("{} ns", nanos(aim)),
        });
        writeln!(
            f,
            "| {} | {} | {threads} | {} | {peer} | {} | {} | {at_most:.2} × | {} | {verdict} |",
            scenario.title(),
            part.title(),
            or_dash(shown.map(|(ours, _, _)| format!("{} ns", nanos(ours)))),
            or_dash(shown.map(|(_, theirs, _)| format!("{} ns", nanos(theirs)))),
            or_dash(shown.map(|(_, _, ratio)| format!("{} ×", two_digits(ratio)))),
            or_dash(aim),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# What a limiter adds to a request, state in memory\n")?;
        let (requests, rounds, runs) = (grouped(self.requests), self.rounds, self.runs);
        writeln!(f, "Medians of {runs} whole runs, with the range of the runs. In a run each limiter has")?;
        writeln!(f, "{rounds} rounds of {requests} requests per thread, in turn; their median counts.")?;
        writeln!(f, "Nanoseconds per request of a thread, minus those of the same loop without a limiter.")?;
        writeln!(f, "A ratio is formed within each run, to the same part of the other limiter.\n")?;
        self.limiters(f)?;
        for threads in self.threads() {
            self.summary(f, threads, true)?;
            self.summary(f, threads, false)?;
            for table in self.tables.iter().filter(|table| table.threads == threads) {
                table.write(f, self.requests * self.rounds * self.runs * threads as u64)?;
            }
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

pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| String::from("–"))
}
