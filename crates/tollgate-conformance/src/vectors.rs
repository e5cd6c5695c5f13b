//! Golden vectors as text: requests for one key and the oracle's answers.
//!
//! They help to implement an algorithm in another language or store. The directory `vectors` of
//! this crate has a file for each algorithm. The head of each file describes its format. The
//! [suite](crate::Suite) runs all vectors on every store; this module gives access to each line.
//!
//! ```
//! use tollgate_conformance::vectors::{self, Action};
//!
//! for vector in vectors::all() {
//!     for step in &vector.steps {
//!         if let Action::Acquire { cost, expected: Some(expected), .. } = &step.action {
//!             println!("{}:{}: {cost} units, {} left", vector.file, step.line, expected.remaining);
//!         }
//!     }
//! }
//! ```

use std::fmt;
use std::time::Duration;

use tollgate_core::{Algorithm, Boundaries, Policy, Quota, Renewal, Times, Timestamp, Wait};

/// The vector files: name and text.
pub const FILES: [(&str, &str); 9] = [
    ("gcra", include_str!("../vectors/gcra.txt")),
    ("leaky-bucket", include_str!("../vectors/leaky-bucket.txt")),
    ("fixed-window", include_str!("../vectors/fixed-window.txt")),
    ("fixed-window-aligned", include_str!("../vectors/fixed-window-aligned.txt")),
    ("calendar-window", include_str!("../vectors/calendar-window.txt")),
    ("sliding-window", include_str!("../vectors/sliding-window.txt")),
    ("sliding-buckets", include_str!("../vectors/sliding-buckets.txt")),
    ("sliding-log", include_str!("../vectors/sliding-log.txt")),
    ("in-flight", include_str!("../vectors/in-flight.txt")),
];

/// A sequence of requests for one key, from its first request on.
#[derive(Clone, Debug)]
pub struct Vector {
    /// The name of the file and the algorithm.
    pub file: &'static str,
    /// Its title.
    pub title: String,
    /// Whether it is only for stores that end a slot with its time to live:
    /// [`Status::ends_after`](tollgate_core::Status::ends_after).
    pub has_ttl: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A line of a vector.
#[derive(Clone, Debug)]
pub struct Step {
    /// The number of the line in its file, from 1.
    pub line: usize,
    /// The current policy. Limit and burst may change within a vector; the scope does not.
    pub policy: Policy,
    /// The time.
    pub now: Timestamp,
    /// The action.
    pub action: Action,
}

/// The action of a step.
#[derive(Clone, Debug)]
pub enum Action {
    /// A set of one check.
    Acquire {
        /// Units of each grant.
        cost: u64,
        /// How often to acquire.
        times: Times,
        /// The answer; `None` only in a file that is being written.
        expected: Option<Expected>,
    },
    /// A refund of a grant or of a part of it.
    Refund {
        /// The index of the acquire in this vector, counted from 0.
        of: usize,
        /// The number of units.
        units: u64,
    },
    /// A renewal of the first slot of a grant.
    Renew {
        /// The index of the acquire in this vector, counted from 0.
        of: usize,
        /// The answer; `None` only in a file that is being written.
        expected: Option<Renewal>,
    },
    /// Corrects the charge of a grant, as [`Store::settle`](tollgate_core::Store::settle) does.
    Settle {
        /// The index of the acquire in this vector, counted from 0.
        of: usize,
        /// The number of units that are charged.
        from: u64,
        /// The number of units that were used.
        to: u64,
    },
}

/// The answer to an acquire. Its `Display` form is used in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The number of grants; 0 for a denial or a look.
    pub times: u32,
    /// Units left.
    pub remaining: u64,
    /// The wait for the cost.
    pub wait: Wait,
    /// The time until the full quota is available.
    pub reset_after: Duration,
    /// How long to delay the request.
    pub delay: Duration,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "times={} remaining={} wait=", self.times, self.remaining)?;
        match self.wait {
            Wait::None => f.write_str("none")?,
            Wait::For(wait) => write!(f, "{}", wait.as_micros())?,
            Wait::Never => f.write_str("never")?,
        }
        write!(f, " reset={} delay={}", self.reset_after.as_micros(), self.delay.as_micros())
    }
}

/// Every vector of every file.
pub fn all() -> impl Iterator<Item = Vector> {
    FILES.into_iter().flat_map(|(file, text)| parse(file, text))
}

/// Parses vectors in the format that the heads of the files describe.
///
/// # Panics
/// If a line is invalid, with its number.
pub fn parse(file: &'static str, text: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    let mut policy = None;
    let mut now = Timestamp::EPOCH;
    for (i, line) in text.lines().enumerate() {
        let line_number = i + 1;
        let at = format!("{file}:{line_number}: {line:?}");
        let (asked, answer) = match line.split_once("=>") {
            Some((asked, answer)) => (asked, Some(answer)),
            None => (line, None),
        };
        let words: Vec<&str> = asked.split_whitespace().collect();
        match words[..] {
            [] => {}
            [comment, ..] if comment.starts_with('#') => {}
            ["vector", ..] => {
                let title = words[1..].join(" ");
                vectors.push(Vector { file, title, has_ttl: false, steps: Vec::new() });
                policy = None;
            }
            ["ttl"] => {
                let vector = vectors.last_mut().unwrap_or_else(|| panic!("{at}: no vector has a ttl"));
                vector.has_ttl = true;
            }
            ["policy", algorithm, ..] => policy = Some(policy_of(algorithm, &words[2..], &at)),
            [time, ref rest @ ..] => {
                let policy = policy.clone().unwrap_or_else(|| panic!("{at}: a step without a policy"));
                now = time_of(time, now, &at);
                let action = action_of(rest, answer, &at);
                let vector = vectors.last_mut().unwrap_or_else(|| panic!("{at}: a step before any vector"));
                vector.steps.push(Step { line: line_number, policy, now, action });
            }
        }
    }
    vectors
}

fn policy_of(algorithm: &str, fields: &[&str], at: &str) -> Policy {
    let (mut limit, mut window, mut burst, mut max_wait, mut buckets) = (0, 0, None, 0, 0);
    let mut boundaries = Boundaries::NONE;
    for field in fields {
        match field.split_once('=') {
            Some(("limit", value)) => limit = number(value, at),
            Some(("window", value)) => window = number(value, at),
            Some(("burst", value)) => burst = Some(number(value, at)),
            Some(("max_wait", value)) => max_wait = number(value, at),
            Some(("buckets", value)) => buckets = number(value, at),
            Some(("boundaries", value)) => {
                let times: Vec<u64> = value.split(',').map(|time| number(time, at)).collect();
                boundaries =
                    Boundaries::try_new(times.leak()).unwrap_or_else(|error| panic!("{at}: {error}"));
            }
            _ => panic!("{at}: unknown field {field:?}"),
        }
    }
    let quota = Quota::new(limit, Duration::from_micros(window));
    let algorithm = match algorithm {
        "gcra" => Algorithm::Gcra,
        "leaky-bucket" => Algorithm::LeakyBucket { max_wait: Duration::from_micros(max_wait) },
        "fixed-window" => Algorithm::FIXED_WINDOW,
        "fixed-window-aligned" => Algorithm::FIXED_WINDOW_ALIGNED,
        "calendar-window" => Algorithm::CalendarWindow { boundaries },
        "sliding-window" => Algorithm::SlidingWindow,
        "sliding-buckets" => Algorithm::SlidingBuckets { buckets },
        "sliding-log" => Algorithm::SLIDING_LOG,
        "in-flight" => Algorithm::InFlight,
        other => panic!("{at}: unknown algorithm {other:?}"),
    };
    let quota = burst.map_or(quota, |burst| quota.burst(burst));
    Policy::try_from_parts("vector", quota, algorithm).unwrap_or_else(|error| panic!("{at}: {error}"))
}

fn time_of(word: &str, now: Timestamp, at: &str) -> Timestamp {
    let micros = match word.split_at_checked(1) {
        Some(("@", absolute)) => number(absolute, at),
        Some(("+", later)) => now.as_micros() + number::<u64>(later, at),
        Some(("-", earlier)) => now.as_micros() - number::<u64>(earlier, at),
        _ => panic!("{at}: a time is @absolute, +later or -earlier"),
    };
    Timestamp::from_micros(micros)
}

fn action_of(words: &[&str], answer: Option<&str>, at: &str) -> Action {
    let acquire = |cost, times| {
        let expected = answer.map(|answer| expected_of(answer, at));
        Action::Acquire { cost: number(cost, at), times, expected }
    };
    match words {
        ["take", cost] => acquire(cost, Times::ONCE),
        ["look", cost] => acquire(cost, Times::LOOK),
        ["take", cost, "times", min, max] => acquire(cost, Times::between(number(min, at), number(max, at))),
        ["refund", units, "of", of] => Action::Refund { of: index(of, at), units: number(units, at) },
        ["renew", "of", of] => {
            let expected = answer.map(|answer| match answer.trim() {
                "held" => Renewal::Held,
                "lost" => Renewal::Lost,
                _ => panic!("{at}: a renewal is held or lost"),
            });
            Action::Renew { of: index(of, at), expected }
        }
        ["settle", from, "to", to, "of", of] => {
            Action::Settle { of: index(of, at), from: number(from, at), to: number(to, at) }
        }
        _ => panic!("{at}: not a step"),
    }
}

fn index(of: &str, at: &str) -> usize {
    number::<usize>(of, at).checked_sub(1).unwrap_or_else(|| panic!("{at}: grants are counted from 1"))
}

fn expected_of(answer: &str, at: &str) -> Expected {
    let mut fields = answer.split_whitespace();
    let mut field = |name: &str| {
        let value = fields.next().and_then(|field| field.split_once('='));
        value.filter(|(found, _)| *found == name).unwrap_or_else(|| panic!("{at}: {name} is missing")).1
    };
    let micros = |value: &str| Duration::from_micros(number(value, at));
    Expected {
        times: number(field("times"), at),
        remaining: number(field("remaining"), at),
        wait: match field("wait") {
            "none" => Wait::None,
            "never" => Wait::Never,
            wait => Wait::For(micros(wait)),
        },
        reset_after: micros(field("reset")),
        delay: micros(field("delay")),
    }
}

fn number<N: std::str::FromStr>(text: &str, at: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("{at}: {text:?} is not a number that fits"))
}
