//! How cost grows: of a decision in memory from 1,000 to 10,000,000 keys, and of decisions through
//! Redis from 1 to 4,096 tasks. Each figure is the median of whole runs, with their range.
//!
//! `cargo bench -p tollgate-benches --bench scale [-- --plot ../docs]`

#![expect(clippy::disallowed_methods, clippy::float_arithmetic, reason = "it measures")]

mod scale {
    pub(crate) mod in_memory;
    pub(crate) mod plot;
    pub(crate) mod through_redis;
}

use std::error::Error;
use std::iter::successors;
use std::path::PathBuf;

use clap::Parser;

use scale::plot::{Curve, Panel};
use scale::{in_memory, plot, through_redis};

#[derive(Debug, Parser)]
struct Options {
    /// Writes `scale-keys.svg` and `scale-tasks.svg` to this directory.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Whole runs, of which the medians count.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The most keys in memory.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(10_000..))]
    most_keys: u32,
    /// The most tasks through Redis.
    #[arg(long, value_name = "N", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(4..))]
    most_tasks: u32,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Three figures in several runs, at a number of keys or tasks.
struct Row {
    at: u32,
    runs: Vec<[f64; 3]>,
}

impl Row {
    /// The least, the median and the most of a figure.
    fn spread(&self, figure: usize) -> [f64; 3] {
        let mut runs: Vec<f64> = self.runs.iter().map(|run| run[figure]).collect();
        runs.sort_unstable_by(f64::total_cmp);
        let median = f64::midpoint(runs[(runs.len() - 1) / 2], runs[runs.len() / 2]);
        [runs[0], median, runs[runs.len() - 1]]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let upto = |first, times, last| {
        successors(Some(first), move |at: &u32| at.checked_mul(times).filter(|at| *at <= last))
    };

    let keys =
        measure(options.runs, upto(1_000, 10, options.most_keys), "keys", |keys| Ok(in_memory::run(keys)))?;
    print("keys in memory", ["ns, later decision", "ns, first decision", "bytes per key"], &keys, [0, 0, 1]);

    let server = through_redis::Setup::new()?;
    let tasks = measure(options.runs, upto(1, 4, options.most_tasks), "tasks", |tasks| server.run(tasks))?;
    print("tasks through Redis", ["decisions/s", "median µs", "server µs per decision"], &tasks, [0, 0, 2]);

    let Some(directory) = options.plot else { return Ok(()) };
    plot::write(
        &directory.join("scale-keys.svg"),
        "Decisions in memory, by the number of keys",
        10.0,
        [
            Panel {
                title: "nanoseconds per decision",
                is_log: false,
                curves: vec![curve("first of a key", &keys, 1), curve("later", &keys, 0)],
            },
            Panel { title: "bytes per key", is_log: false, curves: vec![curve("heap", &keys, 2)] },
        ],
    )?;
    plot::write(
        &directory.join("scale-tasks.svg"),
        "Decisions through Redis, by the number of tasks that ask at once",
        4.0,
        [
            Panel { title: "decisions a second", is_log: false, curves: vec![curve("all tasks", &tasks, 0)] },
            Panel {
                title: "median latency in µs",
                is_log: true,
                curves: vec![curve("a decision", &tasks, 1)],
            },
        ],
    )
}

/// Goes through all sizes in each run, so that other load on the machine affects all of them.
fn measure(
    runs: u32,
    sizes: impl Iterator<Item = u32>,
    unit: &str,
    once: impl Fn(u32) -> Result<[f64; 3], Box<dyn Error>>,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows: Vec<Row> = sizes.map(|at| Row { at, runs: Vec::new() }).collect();
    for run in 1..=runs {
        for row in &mut rows {
            eprintln!("run {run} of {runs}, {} {unit} …", row.at);
            row.runs.push(once(row.at)?);
        }
    }
    Ok(rows)
}

fn print(unit: &str, figures: [&str; 3], rows: &[Row], digits: [usize; 3]) {
    println!("| {unit} | {} | range | {} | range | {} | range |", figures[0], figures[1], figures[2]);
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    for row in rows {
        print!("| {} |", row.at);
        for (figure, digits) in digits.into_iter().enumerate() {
            let [least, median, most] = row.spread(figure);
            print!(" {median:.digits$} | {least:.digits$} to {most:.digits$} |");
        }
        println!();
    }
    println!();
}

fn curve(label: &'static str, rows: &[Row], figure: usize) -> Curve {
    let points = rows.iter().map(|row| (f64::from(row.at), row.spread(figure))).collect();
    Curve { label, points }
}
