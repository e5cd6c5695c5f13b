//! How many decisions a limiter makes through Redis, and what each costs the server.

pub(crate) mod alone;
mod contenders;
pub(crate) mod host;
pub(crate) mod measure;
mod report;
pub(crate) mod scenario;
mod targets;

use std::time::Duration;

use clap::Args;
use tokio::runtime::{Builder, Runtime};

use contenders::{Contender, Setup};
use host::{Failure, Host, Kind};
use report::{Line, Report, Run};
use scenario::{Crowd, Scenario};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Only contenders whose name contains this, and the yardsticks; may be given several times.
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Only this scenario; may be given several times.
    #[arg(long, value_enum)]
    scenario: Vec<Scenario>,
    /// Also tollgate with pools of these sizes, in a separate table: 1,2,4,8,16.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    connections: Vec<u32>,
    /// Decisions without Redis instead: leases, the cache of denials, and trypema's hybrid.
    #[arg(long)]
    leased: bool,
    /// Seconds that a contender has in a run, after a warm-up.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Whole runs. The report has the medians over them.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The quota of a key per day. A quota that is too small for a scenario leads to denials.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_day: Option<u32>,
    /// The server to start for the run.
    #[arg(long, value_enum, default_value_t = Kind::Installed)]
    server: Kind,
    /// A running server to use instead. Its database must be empty, and is emptied repeatedly.
    #[arg(long, value_name = "redis://…", conflicts_with = "server")]
    url: Option<String>,
}

/// Opens connections, loads scripts and creates keys before a contender is measured.
const WARM_UP: Duration = Duration::from_millis(500);

pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut host = match &options.url {
        Some(url) => Host::at(url)?,
        None => Host::start(options.server)?,
    };
    let mut report = Report::new(host.title()?, options.seconds, options.runs);
    let scenarios = if options.scenario.is_empty() { &Scenario::ALL[..] } else { &options.scenario };
    let crowds: Vec<Crowd> = scenarios.iter().map(|&scenario| Crowd::new(scenario)).collect();
    for &scenario in scenarios {
        let per_day = options.per_day.unwrap_or(scenario.per_day());
        let lineup = lineup(scenario, options).into_iter();
        report.lines.extend(lineup.map(|contender| Line::new(contender, scenario, per_day)));
    }
    for run in 0..options.runs {
        for (&scenario, crowd) in scenarios.iter().zip(&crowds) {
            eprintln!("run {} of {}, {} …", run + 1, options.runs, scenario.title());
            let mut lines: Vec<&mut Line> = report.of(scenario).collect();
            // Contenders take turns, so that other load on the machine affects all of them.
            let first = run as usize % lines.len().max(1);
            lines.rotate_left(first);
            for line in lines {
                measure(line, crowd, &mut host, options.seconds)?;
            }
        }
    }
    Ok(report)
}

fn lineup(scenario: Scenario, options: &Options) -> Vec<Contender> {
    let named = |contender: &Contender| {
        options.filter.iter().any(|name| contender.name.contains(name) || contender.part.contains(name))
    };
    let mut lineup = if options.leased { contenders::leased() } else { contenders::all() };
    lineup.retain(|one| options.filter.is_empty() || one.name == scenario.yardstick() || named(one));
    if scenario.is_load() {
        lineup.extend(contenders::by_connections(&options.connections));
    }
    lineup
}

/// One run of a contender, on empty keys.
fn measure(line: &mut Line, crowd: &Crowd, host: &mut Host, seconds: u64) -> Result<(), Failure> {
    host.empty()?;
    // Its own runtime: background tasks of a contender end with it.
    let runtime = runtime()?;
    let Line { contender, scenario, per_day, .. } = *line;
    let failed = |error| format!("{} cannot be set up: {error}", contender.name);
    let setup = Setup {
        url: host.url().to_owned(),
        per_day,
        connections: contender.connections,
        tasks: scenario.tasks(),
    };
    let subject = runtime.block_on((contender.build)(setup)).map_err(failed)?;
    runtime.block_on(subject.run(crowd, WARM_UP));
    let before = host.cpu()?;
    let sample = runtime.block_on(subject.run(crowd, Duration::from_secs(seconds)));
    line.runs.push(Run { sample, server: host.cpu()?.saturating_sub(before) });
    Ok(())
}

/// Two threads, as in a small service, in addition to the server.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}
