//! The report, as markdown.

use std::fmt;
use std::time::Duration;

use super::contenders::{Contender, GROUPED, OURS, WHOLE_LAYER};
use super::measure::Sample;
use super::scenario::{EMPTY_SCRIPT, INCR, Scenario};
use super::targets::{Figure, TARGETS, Target};
use crate::measure::Answers;
use crate::report::{grouped, or_dash, version};
use crate::summary::{Summary, times, two_digits};

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) contender: Contender,
    pub(crate) scenario: Scenario,
    pub(crate) per_day: u32,
    pub(crate) runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) sample: Sample,
    /// The processor time of the server.
    pub(crate) server: Duration,
}

impl Run {
    fn decided(&self) -> u64 {
        let Answers { allowed, denied, .. } = self.sample.answers;
        allowed + denied
    }

    /// Decisions a second, or the median microseconds of one.
    fn figure(&self, scenario: Scenario) -> f64 {
        if scenario.is_load() {
            return self.decided() as f64 / self.sample.wall.as_secs_f64();
        }
        self.sample.median.map_or(f64::INFINITY, |median| median.as_secs_f64() * 1e6)
    }
}

impl Line {
    pub(crate) fn new(contender: Contender, scenario: Scenario, per_day: u32) -> Line {
        Line { contender, scenario, per_day, runs: Vec::new() }
    }

    fn is_yardstick(&self) -> bool {
        self.contender.name == self.scenario.yardstick()
    }

    /// In each run.
    fn figures(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.figure(self.scenario)).collect()
    }

    /// The server's processor time per decision.
    fn server_micros(&self) -> Option<Summary> {
        Summary::of(self.runs.iter().map(|run| run.server.as_secs_f64() * 1e6 / run.decided() as f64))
    }

    fn answers(&self) -> Answers {
        let mut answers = Answers::default();
        self.runs.iter().for_each(|run| answers += run.sample.answers);
        answers
    }

    /// A figure as text: thousands of decisions a second, or microseconds.
    fn number(&self, figure: f64) -> String {
        if self.scenario.is_load() { format!("{:.0}", figure / 1e3) } else { format!("{figure:.1}") }
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    server: String,
    /// The load average before the first run.
    load: String,
    seconds: u64,
    runs: u64,
    pub(crate) lines: Vec<Line>,
}

impl Report {
    pub(crate) fn new(server: String, seconds: u64, runs: u64) -> Report {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").to_owned();
        Report { server, load, seconds, runs, lines: Vec::new() }
    }

    pub(crate) fn of(&mut self, scenario: Scenario) -> impl Iterator<Item = &mut Line> {
        self.lines.iter_mut().filter(move |line| line.scenario == scenario)
    }

    /// tollgate's whole layer with the default number of connections.
    fn ours(&self, scenario: Scenario) -> Option<&Line> {
        self.line(scenario, OURS, WHOLE_LAYER, None)
    }

    /// The figure of a line as a multiple of that of its scenario's yardstick in the same run.
    fn ratio(&self, line: &Line) -> Option<Summary> {
        let yardstick = self.table(line.scenario).find(|line| line.is_yardstick())?;
        Summary::of_ratios(&line.figures(), &yardstick.figures())
    }

    fn table(&self, scenario: Scenario) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.scenario == scenario)
    }

    fn line(&self, scenario: Scenario, name: &str, part: &str, connections: Option<u32>) -> Option<&Line> {
        self.table(scenario).find(|line| {
            let Contender { name: of, part: what, connections: by, .. } = line.contender;
            of == name && what == part && by == connections
        })
    }

    /// All scenarios at a glance.
    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| |")?;
        for scenario in Scenario::ALL {
            write!(f, " {} |", scenario.short_title())?;
        }
        writeln!(f, "\n|---|--:|--:|--:|--:|--:|")?;
        let mut rows: Vec<(&str, &str)> = Vec::new();
        for Contender { name, part, connections, .. } in self.lines.iter().map(|line| line.contender) {
            if connections.is_none() && !rows.contains(&(name, part)) {
                rows.push((name, part));
            }
        }
        for (name, part) in rows {
            write!(f, "| {name}, {part} |")?;
            for scenario in Scenario::ALL {
                let cell = self.line(scenario, name, part, None).and_then(|line| {
                    let unit = if scenario.is_load() { "k/s" } else { "µs" };
                    let figure = line.number(Summary::of(line.figures())?.median);
                    let ratio =
                        self.ratio(line).map_or_else(String::new, |ratio| format!(", {}", times(ratio)));
                    Some(format!("{figure} {unit}{ratio}"))
                });
                write!(f, " {} |", or_dash(cell))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }

    fn scenario(&self, f: &mut fmt::Formatter<'_>, scenario: Scenario) -> fmt::Result {
        let mut lines = self.table(scenario).filter(|line| line.contender.connections.is_none()).peekable();
        let Some(first) = lines.peek() else { return Ok(()) };
        let figure = if scenario.is_load() { "k decisions/s" } else { "median µs" };
        writeln!(f, "## {}\n", capitalized(scenario.title()))?;
        writeln!(f, "Each key may have {} a day.\n", grouped(first.per_day.into()))?;
        write!(f, "| | version | | algorithm | {figure} | range | × {} (range) |", scenario.yardstick())?;
        writeln!(f, " server µs | decided | allowed | failed |")?;
        writeln!(f, "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for line in lines {
            let Contender { name, part, algorithm, .. } = line.contender;
            let Answers { allowed, denied, other } = line.answers();
            let decided = allowed + denied;
            write!(f, "| {name} | {} | {part} | {algorithm} |", version(name).unwrap_or("–"))?;
            let figures = Summary::of(line.figures());
            writeln!(
                f,
                " {} | {} | {} | {} | {} | {} | {} |",
                or_dash(figures.map(|figures| line.number(figures.median))),
                or_dash(figures.map(|figures| figures.range(|figure| line.number(figure)))),
                or_dash(self.ratio(line).map(times)),
                or_dash(line.server_micros().map(|micros| two_digits(micros.median))),
                grouped(decided),
                share(allowed, decided + other),
                if other == 0 { String::from("0") } else { format!("**{}**", grouped(other)) },
            )?;
        }
        writeln!(f)
    }

    fn by_connections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sizes: Vec<u32> = self.lines.iter().filter_map(|line| line.contender.connections).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            return Ok(());
        }
        writeln!(f, "## How many connections\n")?;
        writeln!(f, "{OURS}: its {WHOLE_LAYER}, so many connections, a call at a time on each.")?;
        writeln!(
            f,
            "Bare: so many calls at once on one multiplexed connection, with as many checks in them.\n"
        )?;
        writeln!(f, "| | | {OURS} k/s | × INCR | server µs | bare k/s | × INCR | server µs |")?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for scenario in Scenario::ALL.into_iter().filter(|scenario| scenario.is_load()) {
            for &size in &sizes {
                let ours = self.line(scenario, OURS, WHOLE_LAYER, Some(size));
                let bare = self.line(scenario, GROUPED, "bare", Some(size));
                let (Some(ours), Some(bare)) = (ours, bare) else { continue };
                write!(f, "| {} | {size} |", scenario.title())?;
                for line in [ours, bare] {
                    write!(
                        f,
                        " {} | {} | {} |",
                        or_dash(Summary::of(line.figures()).map(|figures| line.number(figures.median))),
                        or_dash(self.ratio(line).map(|ratio| two_digits(ratio.median))),
                        or_dash(line.server_micros().map(|micros| two_digits(micros.median))),
                    )?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f)
    }

    /// The figure of a target; `None` if not measured.
    fn shown(&self, target: &Target) -> Option<f64> {
        let line = self.ours(target.scenario)?;
        match target.figure {
            Figure::Speed | Figure::Latency => self.ratio(line),
            Figure::ServerMicros => line.server_micros(),
        }
        .map(|summary| summary.median)
    }

    fn target(&self, f: &mut fmt::Formatter<'_>, target: &Target) -> fmt::Result {
        let number = |value: f64| match target.figure {
            Figure::Speed | Figure::Latency => format!("{value:.2} ×"),
            Figure::ServerMicros => format!("{value:.2} µs"),
        };
        let (figure, bound) = match target.figure {
            Figure::Speed => (format!("speed, × {}", target.scenario.yardstick()), "at least"),
            Figure::Latency => (format!("median latency, × {}", target.scenario.yardstick()), "at most"),
            Figure::ServerMicros => (String::from("server's time for a decision"), "at most"),
        };
        let shown = self.shown(target);
        let verdict = match shown {
            None => "not measured",
            Some(shown) if target.aim_is_met(shown) => "met, and the aim",
            Some(shown) if target.is_met(shown) => "met",
            Some(_) => "**not met**",
        };
        writeln!(
            f,
            "| {} | {figure} | {} | {bound} {} | {} | {verdict} |",
            target.scenario.title(),
            or_dash(shown.map(number)),
            number(target.bound),
            or_dash(target.aim.map(number)),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { server, load, seconds, runs, .. } = self;
        writeln!(f, "# Every decision through Redis\n")?;
        writeln!(f, "{server}, on the same machine as a runtime of two threads.")?;
        writeln!(f, "Medians of {runs} whole runs, with the range of the runs. In a run each contender has")?;
        writeln!(
            f,
            "{seconds} s, on empty keys after a warm-up. A ratio is formed within each run: to {INCR}, or"
        )?;
        writeln!(f, "for the latency to {EMPTY_SCRIPT}.")?;
        writeln!(f, "Load average of the machine before the first run: {load}.\n")?;
        self.summary(f)?;
        Scenario::ALL.into_iter().try_for_each(|scenario| self.scenario(f, scenario))?;
        self.by_connections(f)?;
        writeln!(f, "## What {OURS} must show\n")?;
        writeln!(f, "Its {WHOLE_LAYER}, with the default number of connections.\n")?;
        writeln!(f, "| scenario | | {OURS} | bound | aim | |\n|---|---|--:|--:|--:|---|")?;
        TARGETS.iter().try_for_each(|target| self.target(f, target))
    }
}

fn capitalized(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

/// In percent, rounded down, so that only all are 100 %.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::from("–");
    }
    let permille = part * 1_000 / whole;
    format!("{}.{} %", permille / 10, permille % 10)
}
