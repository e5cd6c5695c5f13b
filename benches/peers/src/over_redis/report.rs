//! The report, as markdown.

use std::fmt;
use std::time::Duration;

use super::contenders::{Contender, GROUPED, OURS, WHOLE_LAYER};
use super::measure::Sample;
use super::scenario::Scenario;
use super::targets::{Figure, TARGETS, Target};
use crate::measure::Answers;
use crate::report::{grouped, version};

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) contender: Contender,
    scenario: Scenario,
    per_day: u32,
    rounds: Vec<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    sample: Sample,
    server: Duration,
}

impl Round {
    fn decided(&self) -> u64 {
        let Answers { allowed, denied, .. } = self.sample.answers;
        allowed + denied
    }

    fn per_second(&self) -> f64 {
        self.decided() as f64 / self.sample.wall.as_secs_f64()
    }
}

impl Line {
    pub(crate) fn new(contender: Contender, scenario: Scenario, per_day: u32) -> Line {
        Line { contender, scenario, per_day, rounds: Vec::new() }
    }

    pub(crate) fn take(&mut self, sample: Sample, server: Duration) {
        self.rounds.push(Round { sample, server });
    }

    fn is_yardstick(&self) -> bool {
        self.contender.name == self.scenario.yardstick()
    }

    /// The figure of a round: decisions a second, or the median microseconds of one.
    fn figure(&self, round: &Round) -> f64 {
        if self.scenario.is_load() {
            return round.per_second();
        }
        round.sample.median.map_or(f64::INFINITY, |median| median.as_secs_f64() * 1e6)
    }

    fn best(&self) -> Option<&Round> {
        let by_figure = |one: &&Round, other: &&Round| self.figure(one).total_cmp(&self.figure(other));
        let rounds = self.rounds.iter().filter(|round| round.decided() > 0);
        if self.scenario.is_load() { rounds.max_by(by_figure) } else { rounds.min_by(by_figure) }
    }

    fn best_figure(&self) -> Option<f64> {
        self.best().map(|round| self.figure(round))
    }

    /// The distance of the worst round from the best, in percent of the best.
    fn spread(&self) -> Option<f64> {
        let best = self.best_figure()?;
        let far = self.rounds.iter().map(|round| (self.figure(round) / best - 1.0).abs());
        Some(100.0 * far.fold(0.0, f64::max))
    }

    /// The server's processor time per decision, in the best round.
    pub(crate) fn server_micros(&self) -> Option<f64> {
        let best = self.best()?;
        Some(best.server.as_secs_f64() * 1e6 / best.decided() as f64)
    }

    fn answers(&self) -> Answers {
        let mut answers = Answers::default();
        self.rounds.iter().for_each(|round| answers += round.sample.answers);
        answers
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    server: String,
    /// The load average before the run.
    load: String,
    seconds: u64,
    rounds: u64,
    lines: Vec<Line>,
}

impl Report {
    pub(crate) fn new(server: String, seconds: u64, rounds: u64) -> Report {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").to_owned();
        Report { server, load, seconds, rounds, lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, lines: Vec<Line>) {
        self.lines.extend(lines);
    }

    /// tollgate's whole layer with the default number of connections.
    pub(crate) fn ours(&self, scenario: Scenario) -> Option<&Line> {
        self.line(scenario, OURS, WHOLE_LAYER, None)
    }

    /// The figure of a line divided by that of its scenario's yardstick.
    pub(crate) fn ratio(&self, line: &Line) -> Option<f64> {
        let yardstick = self.table(line.scenario).find(|line| line.is_yardstick())?;
        Some(line.best_figure()? / yardstick.best_figure()?)
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

    fn scenario(&self, f: &mut fmt::Formatter<'_>, scenario: Scenario) -> fmt::Result {
        let mut lines = self.table(scenario).filter(|line| line.contender.connections.is_none()).peekable();
        let Some(first) = lines.peek() else { return Ok(()) };
        let (figure, yardstick) = (unit(scenario), scenario.yardstick());
        writeln!(f, "## {}\n", capitalized(scenario.title()))?;
        writeln!(f, "Each key may have {} a day.\n", grouped(first.per_day.into()))?;
        writeln!(
            f,
            "| | version | | algorithm | {figure} | × {yardstick} | server µs | spread | decided | allowed | failed |"
        )?;
        writeln!(f, "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for line in lines {
            let Contender { name, part, algorithm, .. } = line.contender;
            let Answers { allowed, denied, other } = line.answers();
            let decided = allowed + denied;
            write!(f, "| {name} | {} | {part} | {algorithm} |", version(name).unwrap_or("–"))?;
            self.figures(f, line)?;
            let spread = line.spread().map(|spread| format!("{spread:.0} %"));
            writeln!(
                f,
                " {} | {} | {} | {} |",
                or_dash(spread),
                grouped(decided),
                share(allowed, decided + other),
                if other == 0 { String::from("0") } else { format!("**{}**", grouped(other)) },
            )?;
        }
        writeln!(f)
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>, line: &Line) -> fmt::Result {
        let figure = line.best_figure().map(|figure| {
            if line.scenario.is_load() { format!("{:.0}", figure / 1e3) } else { format!("{figure:.1}") }
        });
        let ratio = self.ratio(line).map(|ratio| format!("{ratio:.2}"));
        let server = line.server_micros().map(|micros| format!("{micros:.2}"));
        write!(f, " {} | {} | {} |", or_dash(figure), or_dash(ratio), or_dash(server))
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
                self.figures(f, ours)?;
                self.figures(f, bare)?;
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
        let Report { server, load, seconds, rounds, .. } = self;
        writeln!(f, "# Every decision through Redis\n")?;
        writeln!(f, "{server}, on the same machine as a runtime of two threads.")?;
        writeln!(
            f,
            "The best of {rounds} rounds of {seconds} s, taken in turn, each on empty keys after a warm-up."
        )?;
        writeln!(f, "Load average of the machine before the run: {load}.\n")?;
        Scenario::ALL.into_iter().try_for_each(|scenario| self.scenario(f, scenario))?;
        self.by_connections(f)?;
        writeln!(f, "## What {OURS} must show\n")?;
        writeln!(f, "Its {WHOLE_LAYER}, with the default number of connections.\n")?;
        writeln!(f, "| scenario | | {OURS} | bound | aim | |\n|---|---|--:|--:|--:|---|")?;
        TARGETS.iter().try_for_each(|target| self.target(f, target))
    }
}

fn unit(scenario: Scenario) -> &'static str {
    if scenario.is_load() { "k decisions/s" } else { "median µs" }
}

fn capitalized(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| String::from("–"))
}

/// In percent, rounded down, so that only all are 100 %.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::from("–");
    }
    let permille = part * 1_000 / whole;
    format!("{}.{} %", permille / 10, permille % 10)
}
