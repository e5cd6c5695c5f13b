//! The timed loop, the same for every contender.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::coop::consume_budget;

use super::scenario::{Crowd, Draws};
use crate::measure::{Answers, now};

/// A contender. Every task has a clone.
pub(crate) trait Decide: Clone + Send + Sync + 'static {
    /// Makes a call for one drawn user, or for as many as it takes, and counts the decisions.
    fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) -> impl Future<Output = ()> + Send;
}

/// Yields to the runtime as often as a task that reads from sockets: a lease answers at once, and a
/// task has to let others run.
#[derive(Clone)]
pub(crate) struct Budgeted<D>(pub(crate) D);

impl<D: Decide> Decide for Budgeted<D> {
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        consume_budget().await;
        self.0.decide(draws, answers).await;
    }
}

/// Counts a failed decision, and prints the first of a task.
pub(crate) fn failed(answers: &mut Answers, error: &dyn Display) {
    if answers.other == 0 {
        eprintln!("a decision failed: {error}");
    }
    answers.other += 1;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) wall: Duration,
    pub(crate) answers: Answers,
    /// The median time of a decision, if there is only one task.
    pub(crate) median: Option<Duration>,
}

pub(crate) trait Subject {
    fn run<'a>(
        &'a self,
        crowd: &'a Crowd,
        time: Duration,
    ) -> Pin<Box<dyn Future<Output = Sample> + Send + 'a>>;
}

/// The loop is compiled for the concrete type: no indirection that a server would not have.
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

/// Makes decisions one after the other. Reads the clock only if the time of each is the figure.
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
