//! tollgate over one server and over a Cluster of three masters, with and without leases.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use tollgate::{Lease, Policy, Quota, StoreExt};
use tollgate_test_servers::{Cluster, Kind, Server};
use tollgate_redis::RedisStore;

use crate::measure::Answers;
use crate::over_redis::alone::Alone;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Budgeted, Prepared, Subject};
use crate::over_redis::scenario::{Crowd, Scenario};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Seconds per round, after a warm-up.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Rounds of which the best counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
}

const SCENARIOS: [Scenario; 3] = [Scenario::Uniform512, Scenario::Zipf, Scenario::Hot];

const WARM_UP: Duration = Duration::from_millis(500);

/// The best round of one row.
#[derive(Clone, Copy, Default)]
struct Best {
    per_second: f64,
    trips: f64,
    server_micros: f64,
    answers: Answers,
}

pub(crate) fn run(options: &Options) -> Result<String, Failure> {
    let server = Server::start(Kind::Installed)?;
    let cluster = Cluster::start(Kind::Installed)?;
    let (masters, replicas) = cluster.nodes().split_at(3);
    // They would share the processors, and decide nothing.
    replicas.iter().for_each(Server::kill);
    let cluster_url = masters[0].url().replacen("redis://", "redis-cluster://", 1);
    let one = (server.url(), std::slice::from_ref(&server));
    let setups = [("one server", &one), ("three masters", &(cluster_url, masters))];

    let mut report = "| | servers | | k decisions/s | round trips per decision | server µs | allowed | denied | failed |\n\
                      |---|---|---|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for scenario in SCENARIOS {
        let crowd = Crowd::new(scenario);
        for (name, (url, servers)) in setups {
            for is_leased in [false, true] {
                let mut best = Best::default();
                for _ in 0..options.rounds {
                    let round = round(url, servers, scenario, &crowd, is_leased, options.seconds)?;
                    if round.per_second > best.per_second {
                        best = round;
                    }
                }
                let Best { per_second, trips, server_micros, answers } = best;
                let (title, how) = (scenario.title(), if is_leased { "leased" } else { "exact" });
                let Answers { allowed, denied, other } = answers;
                writeln!(
                    report,
                    "| {title} | {name} | {how} | {:.0} | {trips:.4} | {server_micros:.2} | {allowed} | {denied} | {other} |",
                    per_second / 1e3,
                )?;
                eprintln!("{title}, {name}, {how}: {:.0} k/s", per_second / 1e3);
            }
        }
    }
    Ok(report)
}

fn round(
    url: &str,
    servers: &[Server],
    scenario: Scenario,
    crowd: &Crowd,
    is_leased: bool,
    seconds: u64,
) -> Result<Best, Failure> {
    for server in servers {
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
    Ok(Best {
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
