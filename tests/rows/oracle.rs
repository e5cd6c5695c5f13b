//! What each customer must have used and hold at the end, by the journals of all processes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What all processes wrote.
#[derive(Default)]
pub(crate) struct Oracle {
    streams: BTreeMap<String, Stream>,
    jobs: BTreeMap<String, Job>,
    /// The processes that stopped in order, and those of them that did not send a correction.
    closed: BTreeSet<String>,
    lossy: BTreeSet<String>,
}

/// A request for units. Times are in microseconds.
#[derive(Default)]
struct Stream {
    customer: u64,
    estimate: u64,
    limit: u64,
    asked: u64,
    answer: Answer,
    answered: u64,
    /// The total to which it is settled, and when that began.
    total: Option<(u64, u64)>,
    /// What the store charged, kept, and may have charged.
    settled: Option<(u64, u64, u64)>,
}

#[derive(Default, PartialEq)]
enum Answer {
    /// None, or one that leaves open what the store did.
    #[default]
    Unknown,
    Granted,
    Refused,
}

#[derive(Default)]
struct Job {
    customer: u64,
    limit: u64,
    asked: u64,
    answer: Answer,
    answered: u64,
    /// When the first release began, and whether one was answered.
    release: Option<u64>,
    is_released: bool,
}

impl Oracle {
    /// Reads the journal of a process. The last line of a killed one may be cut off.
    pub(crate) fn read(&mut self, process: &str, journal: &str) {
        let whole = journal.rfind('\n').map_or("", |end| &journal[..end]);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let (time, id) = (number(0), words[2]);
            match words[1] {
                "ask" => {
                    let (customer, estimate, limit) = (number(3), number(4), number(5));
                    let stream = Stream { customer, estimate, limit, asked: time, ..Stream::default() };
                    self.streams.insert(id.to_owned(), stream);
                }
                "granted" | "refused" => {
                    let stream = self.streams.get_mut(id).expect("it was asked");
                    let is_granted = words[1] == "granted";
                    stream.answer = if is_granted { Answer::Granted } else { Answer::Refused };
                    stream.answered = time;
                }
                "settle" => self.streams.get_mut(id).expect("it was asked").total = Some((number(3), time)),
                "settled" => {
                    let settled = (number(3), number(4), number(5));
                    self.streams.get_mut(id).expect("it was asked").settled = Some(settled);
                }
                "take" => {
                    let (customer, limit) = (number(3), number(4));
                    let job = self.jobs.entry(id.to_owned()).or_default();
                    (job.customer, job.limit, job.asked) = (customer, limit, time);
                }
                "held" | "full" => {
                    let job = self.jobs.entry(id.to_owned()).or_default();
                    job.answer = if words[1] == "held" { Answer::Granted } else { Answer::Refused };
                    job.answered = time;
                }
                // By another process, whose journal may be read first.
                "release" => {
                    let job = self.jobs.entry(id.to_owned()).or_default();
                    job.release = Some(job.release.map_or(time, |earlier| earlier.min(time)));
                }
                "released" => self.jobs.entry(id.to_owned()).or_default().is_released = true,
                "unknown" | "lost" | "unreleased" => {}
                "closed" => {
                    self.closed.insert(process.to_owned());
                    assert_eq!(number(2), 1, "process {process} has sent all that it kept");
                    if number(3) > 0 {
                        self.lossy.insert(process.to_owned());
                    }
                }
                step => panic!("what is {step:?}?"),
            }
        }
    }

    /// Whether all that a process kept was sent.
    fn has_sent_all(&self, id: &str) -> bool {
        let process = id.split('-').next().expect("the number of a process");
        self.closed.contains(process) && !self.lossy.contains(process)
    }

    /// What each customer that was served may have used: most of them one number.
    pub(crate) fn used(&self) -> BTreeMap<u64, RangeInclusive<u64>> {
        let mut used = BTreeMap::new();
        for (id, stream) in &self.streams {
            let (least, most) = stream.used(|| self.has_sent_all(id));
            let so_far = used.remove(&stream.customer).unwrap_or(0..=0);
            used.insert(stream.customer, so_far.start() + least..=so_far.end() + most);
        }
        used
    }

    /// The jobs that each customer must hold, and those that it may hold too.
    pub(crate) fn holders(&self) -> BTreeMap<u64, [BTreeSet<String>; 2]> {
        let mut holders: BTreeMap<u64, [BTreeSet<String>; 2]> = BTreeMap::new();
        for (id, job) in &self.jobs {
            let of_customer = holders.entry(job.customer).or_default();
            match job.answer {
                Answer::Refused => {}
                // A take without an answer may be executed late.
                Answer::Unknown => _ = of_customer[1].insert(id.clone()),
                Answer::Granted if job.is_released => {}
                Answer::Granted => _ = of_customer[usize::from(job.release.is_some())].insert(id.clone()),
            }
        }
        holders
    }

    /// No grant exceeds what the row allowed that it was asked by, whatever row others were asked
    /// by. Only what was surely charged before counts.
    pub(crate) fn assert_within_rows(&self) {
        let mut of_customer: BTreeMap<u64, Vec<&Stream>> = BTreeMap::new();
        for stream in self.streams.values().filter(|stream| stream.answer == Answer::Granted) {
            of_customer.entry(stream.customer).or_default().push(stream);
        }
        for streams in of_customer.values() {
            for grant in streams {
                let before = streams.iter().filter(|other| other.answered < grant.asked);
                let charged: u64 = before.map(|other| other.surely_charged_until(grant.answered)).sum();
                assert!(
                    charged + grant.estimate <= grant.limit,
                    "{} units of {} were granted at {}, after {charged}",
                    grant.estimate,
                    grant.limit,
                    grant.asked
                );
            }
        }
        for take in self.jobs.values().filter(|job| job.answer == Answer::Granted) {
            let holds = |other: &&Job| {
                other.customer == take.customer
                    && other.answer == Answer::Granted
                    && other.answered < take.asked
                    && other.release.is_none_or(|release| release > take.answered)
            };
            let held = self.jobs.values().filter(holds).count() as u64;
            assert!(held < take.limit, "a job was taken at {} next to {held} of {}", take.asked, take.limit);
        }
    }
}

impl Stream {
    /// The least and the most units that it used in the end.
    fn used(&self, has_sent_all: impl Fn() -> bool) -> (u64, u64) {
        match (&self.answer, self.total, self.settled) {
            (Answer::Refused, ..) => (0, 0),
            (Answer::Unknown, ..) => (0, self.estimate),
            (Answer::Granted, None, _) => (self.estimate, self.estimate),
            (Answer::Granted, Some(_), Some((charged, 0, 0))) => (charged, charged),
            // Kept, and sent.
            (Answer::Granted, Some((total, _)), Some((_, _, 0))) if has_sent_all() => (total, total),
            (Answer::Granted, Some((total, _)), _) => (self.estimate.min(total), self.estimate.max(total)),
        }
    }

    /// The units that were charged for it at any time until then, at the least.
    fn surely_charged_until(&self, time: u64) -> u64 {
        match self.total {
            Some((total, begun)) if begun <= time => self.estimate.min(total),
            _ => self.estimate,
        }
    }
}
