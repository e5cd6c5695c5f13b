//! Simulates a fleet that shares one limit, and compares exact decisions, leases and local shares.
//!
//! ```text
//! cargo run --release -p fleet -- --nodes 1000 --rate 200000 --limit 100000/s
//! cargo run --release -p fleet -- --faults crashes=10,slow=5% --plot fleet.svg
//! ```
//!
//! The stores, leases and policies are those of the library. Only time, the network and the callers
//! are simulated.

#![allow(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "figures of a report")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures of a report")]

mod cli;
mod plot;
mod score;
#[allow(unreachable_pub, reason = "tests/scale includes it too")]
mod sim;
mod table;
#[path = "../playground/terminal.rs"]
mod terminal;

use std::fmt::Write as _;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use cli::Fleet;
use score::Score;
use sim::{Mode, Plan};
use terminal::{fail, parse, print};

/// In the order of the table: the exact fleet is what the others are compared with.
const MODES: [Mode; 3] = [Mode::Exact, Mode::Leases, Mode::LocalShare];

fn main() -> ExitCode {
    match parse().map(cli::fleet) {
        Ok(Ok(fleet)) => run(&fleet),
        Ok(Err(error)) => fail(&error, 2),
        Err(code) => code,
    }
}

fn run(fleet: &Fleet) -> ExitCode {
    let scores: Vec<Score> = MODES.map(|mode| simulate(&Plan { mode, ..fleet.plan.clone() })).into();
    let mut report = String::new();
    let _ = writeln!(report, "{}\n\n{}", fleet.in_words(), table::Table(&scores));
    print(&report);
    // A local share has no bound.
    let exceeded = scores.iter().find(|score| score.mode != Mode::LocalShare && !score.closest.holds());
    if let Some(score) = exceeded {
        return fail(
            &format!("{} admitted more than its bound: {:?}", table::name(score.mode), score.closest),
            1,
        );
    }
    let Some(file) = &fleet.plot else { return ExitCode::SUCCESS };
    match plot::write(file, &fleet.plan, &scores) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("--plot: cannot write {}: {error}", file.display()), 1),
    }
}

fn simulate(plan: &Plan) -> Score {
    let style = ProgressStyle::with_template("{msg:<12} [{bar:40}] {percent:>3} %, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(u64::try_from(plan.length.as_micros()).unwrap_or(u64::MAX));
    bar.set_style(style);
    bar.set_message(table::name(plan.mode));
    let outcome = sim::run(plan, |micros| bar.set_position(micros));
    bar.finish_and_clear();
    Score::new(plan, outcome)
}
