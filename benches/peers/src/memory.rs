//! Measures what a layer with its state in memory adds to a request.

use clap::Args;

use crate::contenders::{self, Contender};
use crate::measure::{Answers, Load, Subject};
use crate::report::{Line, Report};
use crate::scenario::Scenario;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Only limiters whose package name contains this; may be given several times.
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Only this scenario; may be given several times.
    #[arg(long, value_enum)]
    scenario: Vec<Scenario>,
    /// Only with this many threads; may be given several times. One and two if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    threads: Vec<u8>,
    /// Requests per thread and run.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Runs of which the best counts.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
}

/// Threads that drive clones of one service, in separate rounds.
const THREADS: [u8; 2] = [1, 2];

pub(crate) fn run(options: &Options) -> Report {
    let named = |limiter: &Contender| options.filter.iter().any(|name| limiter.package.contains(name));
    let wanted = |limiter: &Contender| options.filter.is_empty() || named(limiter);
    let limiters: Vec<Contender> = contenders::limiters().into_iter().filter(wanted).collect();

    // Some limiters start a task that sweeps their state. It gets a runtime that nothing drives, so
    // that no sweep falls into a run.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();

    let mut report = Report::new(options.requests, options.runs);
    let threads = if options.threads.is_empty() { &THREADS[..] } else { &options.threads };
    let scenarios = if options.scenario.is_empty() { &Scenario::ALL[..] } else { &options.scenario };
    for &threads in threads {
        for &scenario in scenarios {
            // Denied answers have Retry-After even without fields; only allowed answers differ.
            let measured = |limiter: &&Contender| limiter.fields || scenario.allows();
            let lineup: Vec<Contender> =
                contenders::bare().into_iter().chain(limiters.iter().filter(measured).copied()).collect();
            eprintln!("{}, {threads} thread(s): {} services …", scenario.title(), lineup.len());
            report.add(compare(&lineup, scenario, usize::from(threads), options));
        }
    }
    report
}

/// Rebuilds all services after this many runs. Where the system places uncached memory changes a
/// figure by a tenth, so each service gets several placements.
const RUNS_PER_PLACEMENT: u64 = 5;

/// Services take turns, so that other load on the machine affects all of them.
fn compare(lineup: &[Contender], scenario: Scenario, threads: usize, options: &Options) -> Vec<Line> {
    let mut lines: Vec<Line> = lineup
        .iter()
        .map(|&contender| Line {
            contender,
            scenario,
            threads,
            wall: None,
            answers: Answers::default(),
            fields: vec![],
        })
        .collect();
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    let services = lines.len();
    for round in 0..options.runs {
        if round % RUNS_PER_PLACEMENT == 0 {
            subjects.clear();
            subjects.extend(lines.iter_mut().map(|line| {
                let subject = (line.contender.build)(scenario.plan());
                let headers = subject.warm(scenario.keys());
                line.fields = headers.keys().map(ToString::to_string).collect();
                line.fields.sort_unstable();
                subject
            }));
        }
        for turn in 0..services {
            let number = (turn + round as usize) % services;
            let (subject, line) = (&subjects[number], &mut lines[number]);
            let load = Load { clients: scenario.keys(), requests: options.requests, threads, round };
            let sample = subject.run(load);
            line.wall = Some(line.wall.map_or(sample.wall, |best| best.min(sample.wall)));
            line.answers += sample.answers;
        }
    }
    lines
}
