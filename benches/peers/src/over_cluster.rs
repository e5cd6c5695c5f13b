//! tollgate over one server and over a Cluster of three masters, with and without leases.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use tollgate::{Lease, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Server};

use crate::measure::Answers;
use crate::over_redis::alone::Alone;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Budgeted, Prepared, Subject};
use crate::over_redis::scenario::{Crowd, Scenario};
use crate::report::or_dash;
use crate::summary::Summary;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Seconds that a row has in a run, after a warm-up.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Whole runs. The report has the medians over them.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
}

const SCENARIOS: [Scenario; 3] = [Scenario::Uniform512, Scenario::Zipf, Scenario::Hot];

const WARM_UP: Duration = Duration::from_millis(500);

/// One run of a row.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    trips: f64,
    server_micros: f64,
    answers: Answers,
}

struct Setup<'a> {
    name: &'static str,
    url: String,
    servers: &'a [Server],
}

struct Row<'a> {
    scenario: Scenario,
    crowd: Crowd,
    setup: &'a Setup<'a>,
    is_leased: bool,
    runs: Vec<Run>,
}

impl Row<'_> {
    fn how(&self) -> &'static str {
        if self.is_leased { "leased" } else { "exact" }
    }

    fn median(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        Summary::of(self.runs.iter().map(figure)).map_or(f64::NAN, |summary| summary.median)
    }
}

pub(crate) fn run(options: &Options) -> Result<String, Failure> {
    let server = Server::start(Kind::Installed)?;
    let cluster = Cluster::start(Kind::Installed)?;
    let (masters, replicas) = cluster.nodes().split_at(3);
    // They would share the processors, and decide nothing.
    replicas.iter().for_each(Server::kill);
    let cluster_url = masters[0].url().replacen("redis://", "redis-cluster://", 1);
    let setups = [
        Setup { name: "one server", url: server.url(), servers: std::slice::from_ref(&server) },
        Setup { name: "three masters", url: cluster_url, servers: masters },
    ];

    let mut rows = Vec::new();
    for scenario in SCENARIOS {
        let crowd = Crowd::new(scenario);
        for setup in &setups {
            let row = |is_leased| Row { scenario, crowd: crowd.clone(), setup, is_leased, runs: Vec::new() };
            rows.extend([row(false), row(true)]);
        }
    }
    for run in 0..options.runs {
        for row in &mut rows {
            eprintln!(
                "run {} of {}, {}, {}, {} …",
                run + 1,
                options.runs,
                row.scenario.title(),
                row.setup.name,
                row.how()
            );
            row.runs.push(measure(row, options.seconds)?);
        }
    }
    report(&rows, options)
}

fn report(rows: &[Row<'_>], options: &Options) -> Result<String, Failure> {
    let mut report = format!("Medians of {} whole runs.\n\n", options.runs);
    report.push_str(
        "| | servers | | k decisions/s | range | round trips per decision | server µs | allowed | denied | failed |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let speeds = Summary::of(row.runs.iter().map(|run| run.per_second));
        let mut answers = Answers::default();
        row.runs.iter().for_each(|run| answers += run.answers);
        let Answers { allowed, denied, other } = answers;
        writeln!(
            report,
            "| {} | {} | {} | {:.0} | {} | {:.4} | {:.2} | {allowed} | {denied} | {other} |",
            row.scenario.title(),
            row.setup.name,
            row.how(),
            row.median(|run| run.per_second) / 1e3,
            or_dash(speeds.map(|speeds| speeds.range(|speed| format!("{:.0}", speed / 1e3)))),
            row.median(|run| run.trips),
            row.median(|run| run.server_micros),
        )?;
    }
    Ok(report)
}

fn measure(row: &Row<'_>, seconds: u64) -> Result<Run, Failure> {
    let Row { scenario, crowd, setup: Setup { url, servers, .. }, is_leased, .. } = row;
    for server in *servers {
        server.command(&["FLUSHALL"])?;
    }
    let runtime = crate::over_redis::runtime()?;
    let policy = Policy::new("api", Quota::per_day(scenario.per_day().into()));
    let subject: Box<dyn Subject> = runtime.block_on(async {
        let store = RedisStore::connect(url).await?;
        Ok::<_, Failure>(match is_leased {
            false => Prepared::boxed(Budgeted(Alone { store, policy }), scenario.tasks()),
            true => {
                let store = store.leased(Lease::default());
                Prepared::boxed(Budgeted(Alone { store, policy }), scenario.tasks())
            }
        })
    })?;
    runtime.block_on(subject.run(crowd, WARM_UP));
    let before = spent(servers)?;
    let sample = runtime.block_on(subject.run(crowd, Duration::from_secs(seconds)));
    let after = spent(servers)?;
    let decided = (sample.answers.allowed + sample.answers.denied) as f64;
    Ok(Run {
        per_second: decided / sample.wall.as_secs_f64(),
        trips: (after.0 - before.0) as f64 / decided,
        server_micros: (after.1 - before.1) * 1e6 / decided,
        answers: sample.answers,
    })
}

/// Calls of scripts, and seconds of processor time, of all servers together.
fn spent(servers: &[Server]) -> Result<(u64, f64), Failure> {
    let (mut calls, mut seconds) = (0, 0.0);
    for server in servers {
        let info = server.command(&["INFO", "everything"])?;
        for line in info.lines().map(str::trim) {
            if let Some(stats) = line.strip_prefix("cmdstat_eval") {
                let count = stats.split_once("calls=").and_then(|(_, rest)| rest.split(',').next());
                calls += count.ok_or("commandstats have no calls")?.parse::<u64>()?;
            }
            for name in ["used_cpu_user:", "used_cpu_sys:"] {
                if let Some(value) = line.strip_prefix(name) {
                    seconds += value.parse::<f64>()?;
                }
            }
        }
    }
    Ok((calls, seconds))
}
