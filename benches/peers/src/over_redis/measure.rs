//! The loop that is timed, the same for everybody.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::scenario::{Crowd, Draws};
use crate::measure::{Answers, now};

/// Something that decides. Every task has a clone.
pub(crate) trait Decide: Clone + Send + Sync + 'static {
    /// Draws a user, or as many as a call takes, has it decided about them, and counts what was decided.
    fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) -> impl Future<Output = ()> + Send;
}

/// Counts a decision that failed, and tells of a task's first.
pub(crate) fn failed(answers: &mut Answers, error: &dyn Display) {
    if answers.other == 0 {
        eprintln!("a decision failed: {error}");
    }
    answers.other += 1;
}

/// What a round gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) wall: Duration,
    pub(crate) answers: Answers,
    /// How long one decision took, where one was taken at a time.
    pub(crate) median: Option<Duration>,
}

/// Something that decides, whatever its type.
pub(crate) trait Subject {
    /// Has it decide for so long.
    fn run<'a>(
        &'a self,
        crowd: &'a Crowd,
        time: Duration,
    ) -> Pin<Box<dyn Future<Output = Sample> + Send + 'a>>;
}

/// The loop is compiled for this very contender: no part of it goes through a pointer that a server would not go
/// through.
#[derive(Debug)]
pub(crate) struct Prepared<D> {
    decider: D,
    tasks: usize,
}

impl<D: Decide> Prepared<D> {
    pub(crate) fn boxed(decider: D, tasks: usize) -> Box<dyn Subject> {
        Box::new(Prepared { decider, tasks })
    }
}

impl<D: Decide> Subject for Prepared<D> {
    fn run<'a>(
        &'a self,
        crowd: &'a Crowd,
        time: Duration,
    ) -> Pin<Box<dyn Future<Output = Sample> + Send + 'a>> {
        Box::pin(async move {
            let stop = Arc::new(AtomicBool::new(false));
            let start = now();
            let tasks: Vec<_> = (0..self.tasks)
                .map(|task| {
                    let draws = crowd.draws(task, self.tasks);
                    let (decider, stop) = (self.decider.clone(), Arc::clone(&stop));
                    tokio::spawn(drive(decider, draws, stop, self.tasks == 1))
                })
                .collect();
            tokio::time::sleep(time).await;
            stop.store(true, Ordering::Relaxed);
            let (mut answers, mut times) = (Answers::default(), Vec::new());
            for task in tasks {
                let (more, timed) = task.await.expect("a contender panicked");
                answers += more;
                times.extend(timed);
            }
            Sample { wall: now() - start, answers, median: median(times) }
        })
    }
}

/// Takes one decision after another. The clock is read only where one of them is the figure.
async fn drive<D: Decide>(
    mut decider: D,
    mut draws: Draws,
    stop: Arc<AtomicBool>,
    timed: bool,
) -> (Answers, Vec<Duration>) {
    let (mut answers, mut times) = (Answers::default(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        if timed {
            let start = now();
            decider.decide(&mut draws, &mut answers).await;
            times.push(now() - start);
        } else {
            decider.decide(&mut draws, &mut answers).await;
        }
    }
    (answers, times)
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
