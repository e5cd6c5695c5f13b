//! What was counted.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use super::outcome::RequestOutcome;

/// The counts of one worker, or of all.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) keys: HashMap<u32, Counts>,
    pub(crate) allowed: Latency,
    pub(crate) denied: Latency,
    /// The number of failures by reason.
    pub(crate) failures: HashMap<String, u64>,
    pub(crate) admitted: Vec<Admitted>,
    /// Requests that were given up at the end. Their outcome is not known.
    pub(crate) unfinished: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) failed: u64,
}

/// An allowed request. Times are in microseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) key: u32,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

/// An hour, in microseconds. Longer latencies count as this one.
const LONGEST: u64 = 3_600_000_000;

/// Times from sending to the end of the response, in microseconds, to three digits.
#[derive(Debug)]
pub(crate) struct Latency(pub(crate) Histogram<u64>);

impl Default for Latency {
    fn default() -> Latency {
        Latency(Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are valid"))
    }
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            keys: HashMap::new(),
            allowed: Latency::default(),
            denied: Latency::default(),
            failures: HashMap::new(),
            admitted: Vec::new(),
            unfinished: 0,
        }
    }

    pub(crate) fn record(&mut self, request: Admitted, outcome: RequestOutcome) {
        let counts = self.keys.entry(request.key).or_default();
        let took = request.answered.saturating_sub(request.sent);
        match outcome {
            RequestOutcome::Allowed => {
                counts.allowed += 1;
                self.allowed.0.saturating_record(took);
                self.admitted.push(request);
            }
            RequestOutcome::Denied => {
                counts.denied += 1;
                self.denied.0.saturating_record(took);
            }
            RequestOutcome::Failed(reason) => {
                counts.failed += 1;
                *self.failures.entry(reason).or_default() += 1;
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        for (key, counts) in other.keys {
            self.keys.entry(key).or_default().add(counts);
        }
        for (reason, times) in other.failures {
            *self.failures.entry(reason).or_default() += times;
        }
        self.allowed.add(&other.allowed);
        self.denied.add(&other.denied);
        self.admitted.extend(other.admitted);
        self.unfinished += other.unfinished;
    }

    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.keys.values().for_each(|counts| total.add(*counts));
        total
    }
}

impl Counts {
    pub(crate) fn all(&self) -> u64 {
        self.allowed + self.denied + self.failed
    }

    fn add(&mut self, other: Counts) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.failed += other.failed;
    }
}

impl Latency {
    fn add(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("all have the same bounds");
    }
}
