//! Measures what a layer with its state in memory adds to a request.

use clap::Args;

use crate::contenders::{self, Contender};
use crate::measure::{Load, Subject};
use crate::report::{Report, Table};
use crate::scenario::Scenario;
use crate::summary::Summary;

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
    /// Requests per thread and round.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Rounds per run; their median is the figure of the run.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Whole runs. The report has the medians over them.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
}

/// Threads that drive clones of one service, in separate tables.
const THREADS: [u8; 2] = [1, 2];

pub(crate) fn run(options: &Options) -> Report {
    let named = |limiter: &Contender| options.filter.iter().any(|name| limiter.package.contains(name));
    let wanted = |limiter: &Contender| options.filter.is_empty() || named(limiter);
    let limiters: Vec<Contender> = contenders::limiters().into_iter().filter(wanted).collect();

    // Some limiters start a task that sweeps their state. It gets a runtime that nothing drives, so
    // that no sweep falls into a round.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();

    let threads = if options.threads.is_empty() { &THREADS[..] } else { &options.threads };
    let scenarios = if options.scenario.is_empty() { &Scenario::ALL[..] } else { &options.scenario };
    let mut tables = Vec::new();
    for &threads in threads {
        for &scenario in scenarios {
            let measured = |limiter: &&Contender| limiter.part.is_measured(scenario);
            let lineup = contenders::bare().into_iter().chain(limiters.iter().filter(measured).copied());
            tables.push(Table::new(scenario, usize::from(threads), lineup));
        }
    }
    for run in 0..options.runs {
        for table in &mut tables {
            let Table { scenario, threads, .. } = table;
            eprintln!("run {} of {}, {}, {threads} thread(s) …", run + 1, options.runs, scenario.title());
            measure(table, run, options);
        }
    }
    Report { requests: options.requests, rounds: options.rounds, runs: options.runs, tables }
}

/// One run of each limiter. They are rebuilt for it, because a figure depends on where the system
/// places uncached memory. They take turns, so that other load on the machine affects all of them.
fn measure(table: &mut Table, run: u64, options: &Options) {
    let Table { scenario, threads, ref mut lines } = *table;
    let subjects: Vec<Box<dyn Subject>> = lines
        .iter_mut()
        .map(|line| {
            let subject = (line.contender.build)(scenario.plan());
            line.fields = subject.warm(scenario.keys());
            line.fields.sort_unstable();
            subject
        })
        .collect();
    let mut rounds = vec![Vec::new(); lines.len()];
    for round in 0..options.rounds {
        let round = run * options.rounds + round;
        for turn in 0..lines.len() {
            let at = (turn + round as usize) % lines.len();
            let load = Load { clients: scenario.keys(), requests: options.requests, threads, round };
            let sample = subjects[at].run(load);
            rounds[at].push(sample.wall.as_nanos() as f64 / options.requests as f64);
            lines[at].answers += sample.answers;
        }
    }
    for (line, rounds) in lines.iter_mut().zip(rounds) {
        line.runs.extend(Summary::of(rounds).map(|rounds| rounds.median));
    }
}
