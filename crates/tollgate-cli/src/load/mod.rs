//! `tollgate load`: sends requests, and counts what is admitted.

mod args;
mod grpc;
mod http;
mod interrupt;
mod keys;
mod outcome;
mod plot;
mod store;
mod summary;
mod tally;
mod target;
mod windows;
mod worker;

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_core::Clock;

use self::args::Windows;
pub(crate) use self::args::{AFTER_HELP, LoadArgs, USAGE};
use self::interrupt::Interrupts;
use self::keys::Keys;
use self::plot::Plot;
use self::tally::Tally;
use self::target::LoadTarget;
use self::worker::{LoadRun, work};
use crate::output::{complain, print};

/// Requests of a load without `--iterations` and `--duration`.
const ITERATIONS: u64 = 1_000;

/// How long requests in flight may take after `--duration`, and after Ctrl-C.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the load and prints its summary. Errors are one line.
pub(crate) async fn run(args: LoadArgs) -> Result<ExitCode, String> {
    let cannot_write = |error| {
        let file = args.plot.as_deref().unwrap_or(Path::new("")).display();
        format!("--plot: cannot write {file}: {error}")
    };
    // A file that cannot be written is found before the load. An old plot stays until then.
    let writable = |file| File::options().create(true).append(true).open(file);
    args.plot.as_ref().map(writable).transpose().map_err(cannot_write)?;
    let target = LoadTarget::open(&args).await?;
    let interrupts = Interrupts::new().map_err(|error| format!("cannot wait for Ctrl-C: {error}"))?;

    let clock = Clock::system();
    let started = clock.now().as_micros();
    let tally = load(&args, target, clock.clone(), interrupts).await;
    let ended = clock.now().as_micros();

    // A disk that is full keeps no plot from another.
    let printed = print(&summary::requests(&tally, ended - started));
    let length = u64::try_from(args.window.as_micros()).unwrap_or(u64::MAX);
    let (busiest, over) = windows::busiest(tally.admitted, args.windows, length, args.threshold);
    let from = match args.windows {
        Windows::Sliding => started,
        Windows::Aligned => started / length * length,
    };
    let plot = Plot { busiest: &busiest, from, to: ended, length, threshold: args.threshold };
    let printed = printed.and(print(&summary::windows(&plot)));
    if let Some(file) = &args.plot {
        let svg = plot.svg().map_err(|error| format!("--plot: {error}"))?;
        std::fs::write(file, svg).map_err(cannot_write)?;
    }
    printed?;
    Ok(match summary::excess(&plot, started, over) {
        None => ExitCode::SUCCESS,
        Some(excess) => {
            complain(&excess);
            ExitCode::from(1)
        }
    })
}

/// Sends the requests, until all are answered, the time is over, or Ctrl-C.
async fn load(args: &LoadArgs, target: LoadTarget, clock: Clock, interrupts: Interrupts) -> Tally {
    let iterations = match (args.iterations, args.duration) {
        (Some(iterations), _) => iterations,
        (None, None) => ITERATIONS,
        (None, Some(_)) => u64::MAX,
    };
    let run = Arc::new(LoadRun::new(iterations, progress(iterations), args.redis.timeout, clock));
    let target = Arc::new(target);
    let keys = Keys::new(args.distribution, args.keys);
    let mut workers = JoinSet::new();
    for _ in 0..args.concurrency {
        workers.spawn(work(Arc::clone(&run), Arc::clone(&target), keys));
    }
    let ending = tokio::spawn(end(Arc::clone(&run), args.duration, interrupts));
    let mut tally = Tally::new();
    while let Some(joined) = workers.join_next().await {
        tally.merge(joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
    }
    ending.abort();
    run.progress.finish_and_clear();
    tally
}

/// Ends the load after `duration` or Ctrl-C. A second Ctrl-C ends it at once.
async fn end(run: Arc<LoadRun>, duration: Option<Duration>, mut interrupts: Interrupts) {
    let over = async {
        match duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => {}
        () = interrupts.next() => {}
    }
    run.stop();
    tokio::select! {
        () = sleep(GRACE) => {}
        () = interrupts.next() => {}
    }
    run.give_up();
}

/// On standard error, if that is a terminal.
fn progress(iterations: u64) -> ProgressBar {
    let (bar, template) = match iterations {
        u64::MAX => (ProgressBar::new_spinner(), "{elapsed} {human_pos} requests, {per_sec}"),
        _ => (
            ProgressBar::new(iterations),
            "{elapsed} {bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left",
        ),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
