//! The command line, and the plan that it describes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tollgate::time::TimeSpan;
use tollgate::{Algorithm, Lease, Policy, Quota};

use crate::sim::{Faults, Load, Mode, Plan};

const FAULTS_HELP: &str = "\
What goes wrong, as a list: crashes=10,slow=5%,lost=1%

  crashes=N    processes that crash and are replaced during the run, on average
  lost=P%      requests to the store that are lost, and as many answers
  slow=P%      the part of the time in which the store answers fifty times slower
  partition=P% the part of the time in which no process reaches the store";

/// Simulates a fleet of processes that share one limit: exact decisions, leases, and a local share
/// of the limit on each process.
#[derive(Debug, Parser)]
#[command(
    name = "fleet",
    after_help = "Try: fleet --nodes 1000 --rate 200000 --limit 100000/s --plot fleet.svg"
)]
pub(crate) struct Cli {
    /// Processes at the start
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    nodes: u16,

    /// Processes that join during the run, at even intervals
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    joins: u16,

    /// Requests per second of the whole fleet
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    rate: u32,

    /// The limit of each key: 10000/s, 500/10s
    #[arg(long, value_name = "LIMIT/WINDOW", default_value = "10000/s")]
    limit: String,

    /// The most units at once, for gcra [default: the limit]
    #[arg(long, value_name = "N")]
    burst: Option<u64>,

    /// The algorithm of the limit
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    algorithm: Kind,

    /// The most units of a lease, and its life
    #[arg(long, value_name = "UNITS/DURATION", default_value = "1000/250ms")]
    lease: String,

    /// Keys that the requests are for
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,

    /// Whether all processes and keys get the same load
    #[arg(long, value_name = "LOAD", value_enum, default_value_t)]
    load: Shape,

    /// The time from a process to the store and back
    #[arg(long, value_name = "D", default_value = "1ms")]
    round_trip: String,

    #[arg(long, value_name = "LIST", default_value = "none", help = FAULTS_HELP)]
    faults: String,

    /// Simulated seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,

    /// The seed of all random numbers: runs with the same seed and options are the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Draw what was admitted over time, the limit and the bound
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// `--algorithm`. Fixed windows are aligned to the epoch.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Kind {
    #[default]
    Gcra,
    FixedWindow,
    SlidingWindow,
    SlidingBuckets,
    SlidingLog,
}

/// `--load`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Shape {
    /// By Zipf's law: the n-th process gets 1/n of what the first one gets, and so do keys
    #[default]
    Skewed,
    Even,
}

/// The simulation that was asked for.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The mode is set for each row.
    pub(crate) plan: Plan,
    pub(crate) plot: Option<PathBuf>,
    faults: String,
}

impl Fleet {
    /// One line of all that matters for the figures.
    pub(crate) fn in_words(&self) -> String {
        let Plan { nodes, joins, rate, length, keys, lease_units, life, round_trip, quota, .. } = &self.plan;
        let in_words = |time: Duration| TimeSpan(time).in_words();
        let (limit, window) = (quota.limit(), in_words(quota.window()));
        let (life, length) = (in_words(*life), in_words(*length));
        format!(
            "{nodes} processes and {joins} that join, {rate} requests/s for {keys} key(s), {limit} per {window} \
             ({}), leases of {lease_units} units for {life}, round trip {}, faults: {}, {length}",
            self.plan.algorithm.name(),
            in_words(*round_trip),
            self.faults,
        )
    }
}

pub(crate) fn fleet(cli: Cli) -> Result<Fleet, String> {
    let (lease_units, life) = lease(&cli.lease)?;
    let round_trip = span(&cli.round_trip).filter(|span| *span <= Duration::from_secs(1));
    let round_trip = round_trip
        .ok_or_else(|| format!("--round-trip: {:?} must be a time up to 1s, such as 1ms", cli.round_trip))?;
    let requests = u64::from(cli.rate) * u64::from(cli.seconds);
    let plan = Plan {
        mode: Mode::Exact,
        nodes: cli.nodes,
        joins: cli.joins,
        quota: quota(&cli.limit, cli.burst)?,
        algorithm: match cli.algorithm {
            Kind::Gcra => Algorithm::Gcra,
            Kind::FixedWindow => Algorithm::FIXED_WINDOW_ALIGNED,
            Kind::SlidingWindow => Algorithm::SlidingWindow,
            Kind::SlidingBuckets => Algorithm::SLIDING_BUCKETS,
            Kind::SlidingLog => Algorithm::SLIDING_LOG,
        },
        lease_units,
        life,
        rate: cli.rate,
        length: Duration::from_secs(cli.seconds.into()),
        keys: cli.keys,
        load: match cli.load {
            Shape::Skewed => Load::Skewed,
            Shape::Even => Load::Even,
        },
        round_trip,
        faults: faults(&cli.faults, requests)?,
        seed: cli.seed,
    };
    Policy::try_from_parts("fleet", plan.quota, plan.algorithm)
        .map_err(|error| format!("--limit: {error}"))?;
    Ok(Fleet { plan, plot: cli.plot, faults: cli.faults })
}

fn span(text: &str) -> Option<Duration> {
    text.parse().ok().map(|TimeSpan(time)| time)
}

/// `LIMIT/WINDOW`.
fn quota(text: &str, burst: Option<u64>) -> Result<Quota, String> {
    let parts = text.split_once('/').and_then(|(limit, window)| limit.parse().ok().zip(span(window)));
    let (limit, window) =
        parts.ok_or_else(|| format!("--limit: {text:?} must be a number and a window, such as 10000/s"))?;
    let quota = Quota::try_new(limit, window).map_err(|error| format!("--limit: {text:?}: {error}"))?;
    match burst {
        Some(burst) => quota.try_burst(burst).map_err(|error| format!("--burst: {error}")),
        None => Ok(quota),
    }
}

/// `UNITS/DURATION`.
fn lease(text: &str) -> Result<(u32, Duration), String> {
    let parts = text.split_once('/').and_then(|(units, life)| units.parse::<u32>().ok().zip(span(life)));
    let (units, life) = parts
        .ok_or_else(|| format!("--lease: {text:?} must be a number of units and a time, such as 64/250ms"))?;
    let checked = Lease::try_at_most(units.into()).and_then(|lease| lease.try_lasting(life));
    checked.map(|_| (units, life)).map_err(|error| format!("--lease: {text:?}: {error}"))
}

/// `none`, or a list of `NAME=VALUE`. Probabilities become parts of a million.
fn faults(text: &str, requests: u64) -> Result<Faults, String> {
    let mut faults = Faults::default();
    if text == "none" {
        return Ok(faults);
    }
    for fault in text.split(',') {
        let (name, value) = fault.split_once('=').unwrap_or((fault, ""));
        match name {
            "crashes" => {
                let crashes = value
                    .parse::<u32>()
                    .map_err(|_| format!("--faults: crashes must be a number of processes, got {value:?}"))?;
                faults.crashes = (f64::from(crashes) / requests as f64 * 1e6).ceil().min(1e6) as u32;
            }
            "lost" => (faults.lost_requests, faults.lost_answers) = (part(name, value)?, part(name, value)?),
            "slow" => faults.slow = part(name, value)?,
            "partition" => faults.partition = part(name, value)?,
            _ => {
                return Err(format!(
                    "--faults: {name:?} is not a fault: use none, or crashes, lost, slow, partition"
                ));
            }
        }
    }
    Ok(faults)
}

fn part(name: &str, value: &str) -> Result<u32, String> {
    let percent = value.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent.ok_or_else(|| format!("--faults: {name} must be 0% to 100%, got {value:?}"))?;
    Ok((percent * 1e4) as u32)
}
