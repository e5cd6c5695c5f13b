//! What the servers wrote down, put together.

use std::collections::HashMap;
use std::path::PathBuf;

/// A request that ran. It held a slot from one of these times to the other, as far as it has asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) process: usize,
    /// In microseconds since the epoch.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// When it heard that it had lost its slot.
    pub(crate) lost: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) runs: Vec<Run>,
    pub(crate) granted: u64,
    pub(crate) denied: u64,
    /// Requests that may have been granted, without an answer, of each process.
    pub(crate) unknown: Vec<u64>,
    /// When Redis has answered the looks of each process.
    pub(crate) answers: Vec<Vec<u64>>,
}

impl History {
    pub(crate) fn read<'a>(journals: impl Iterator<Item = &'a PathBuf>) -> History {
        let mut history = History::default();
        for (process, journal) in journals.enumerate() {
            let text = std::fs::read_to_string(journal).unwrap();
            let (mut runs, mut answers, mut asked, mut answered) = (HashMap::new(), Vec::new(), 0, 0);
            // A process that was killed may not have ended its last line.
            for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
                let words: Vec<&str> = line.split(' ').collect();
                let time: u64 = words[0].parse().unwrap();
                match words[1..] {
                    ["asks"] => asked += 1,
                    ["granted"] => (history.granted, answered) = (history.granted + 1, answered + 1),
                    ["denied"] => (history.denied, answered) = (history.denied + 1, answered + 1),
                    ["failed"] => {}
                    ["answered"] => answers.push(time),
                    ["works", id] => {
                        let id: u64 = id.parse().unwrap();
                        let run = Run { process, from: time, to: time, lost: None };
                        runs.entry(id).or_insert(run).to = time;
                    }
                    ["lost", id] => {
                        let id: u64 = id.parse().unwrap();
                        if let Some(run) = runs.get_mut(&id) {
                            run.lost = Some(time);
                        }
                    }
                    _ => panic!("what is {line:?}?"),
                }
            }
            history.unknown.push(asked - answered);
            history.answers.push(answers);
            history.runs.extend(runs.into_values());
        }
        history
    }

    /// The longest time without an answer to a process that ends or begins between these times.
    pub(crate) fn longest_silence(&self, process: usize, from: u64, to: u64) -> u64 {
        let pairs = self.answers[process].windows(2).map(|pair| (pair[0], pair[1]));
        let touching = pairs.filter(|(begin, end)| *begin <= to && *end >= from);
        // A silence at the end has no answer after it.
        touching.map(|(begin, end)| end - begin).max().unwrap_or(u64::MAX)
    }

    /// The most requests that ran at one time, and when, of the times between these.
    pub(crate) fn most_at_once(&self, from: u64, to: u64) -> (u64, u64) {
        // A run that begins when another ends overlaps with it only by the error of the clock.
        let begins = self.runs.iter().map(|run| (run.from, 1));
        let ends = self.runs.iter().map(|run| (run.to, -1));
        let mut changes: Vec<(u64, i64)> = begins.chain(ends).collect();
        changes.sort_unstable();
        let (mut now, mut most) = (0, (0, from));
        for (time, change) in changes {
            now += change;
            if (from..=to).contains(&time) {
                most = most.max((now.max(0).unsigned_abs(), time));
            }
        }
        most
    }
}
