//! How many tasks ask at once, and for which keys.

use std::sync::Arc;

use clap::ValueEnum;
use http::{HeaderName, HeaderValue};

use crate::scenario::Clients;

pub(crate) const KEY_FIELD: HeaderName = HeaderName::from_static("x-user");

/// The number of keys, except in [`Scenario::Hot`].
const KEYS: u16 = 10_000;

/// The names of the yardsticks.
pub(crate) const INCR: &str = "INCR";
pub(crate) const EMPTY_SCRIPT: &str = "EVALSHA of an empty script";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// 64 tasks, 10,000 keys, uniform.
    #[value(name = "uniform-64")]
    Uniform64,
    /// 512 tasks, 10,000 keys, uniform.
    #[value(name = "uniform-512")]
    Uniform512,
    /// 512 tasks, one key.
    Hot,
    /// 512 tasks, 10,000 keys by Zipf's law with s = 1: a tenth of the requests is for the first.
    Zipf,
    /// One task, which waits for each answer.
    Latency,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 5] =
        [Scenario::Uniform64, Scenario::Uniform512, Scenario::Hot, Scenario::Zipf, Scenario::Latency];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Scenario::Uniform64 => "64 tasks, 10,000 keys evenly",
            Scenario::Uniform512 => "512 tasks, 10,000 keys evenly",
            Scenario::Hot => "512 tasks, one hot key",
            Scenario::Zipf => "512 tasks, 10,000 keys by Zipf's law",
            Scenario::Latency => "one caller at a time, 10,000 keys evenly",
        }
    }

    pub(crate) const fn tasks(self) -> usize {
        match self {
            Scenario::Uniform64 => 64,
            Scenario::Uniform512 | Scenario::Hot | Scenario::Zipf => 512,
            Scenario::Latency => 1,
        }
    }

    /// The head of a column.
    pub(crate) const fn short_title(self) -> &'static str {
        match self {
            Scenario::Uniform64 => "64 tasks",
            Scenario::Uniform512 => "512 tasks",
            Scenario::Hot => "512 tasks, one key",
            Scenario::Zipf => "512 tasks, Zipf",
            Scenario::Latency => "one task, median latency",
        }
    }

    /// Whether the figure is throughput; otherwise it is the time of a decision.
    pub(crate) const fn is_load(self) -> bool {
        !matches!(self, Scenario::Latency)
    }

    /// The contender to compare with: the smallest command for a count, or for a script.
    pub(crate) const fn yardstick(self) -> &'static str {
        if self.is_load() { INCR } else { EMPTY_SCRIPT }
    }

    /// Large enough that no request is denied. The hot key has the quota of 10,000 keys.
    pub(crate) const fn per_day(self) -> u32 {
        if matches!(self, Scenario::Hot) { 86_400_000 } else { 1_000_000 }
    }
}

#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    /// The name as the value of [`KEY_FIELD`].
    pub(crate) field: HeaderValue,
}

/// All users and their order, drawn in advance so that drawing is not timed.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    // Leaked, not in an `Arc`: both threads would write its count for every decision.
    users: &'static [User],
    order: Arc<[u16]>,
}

impl Crowd {
    const DRAWS: usize = 1 << 17;

    pub(crate) fn new(scenario: Scenario) -> Crowd {
        let user = |number| {
            let name: &'static str = format!("user-{number}").leak();
            User { name: name.to_owned(), field: HeaderValue::from_static(name) }
        };
        let users: Vec<User> = (0..KEYS).map(user).collect();
        let order = match scenario {
            Scenario::Hot => vec![0; Crowd::DRAWS],
            Scenario::Zipf => zipf(),
            _ => {
                let mut draws = Clients::new(1, KEYS.into());
                (0..Crowd::DRAWS).map(|_| draws.draw() as u16).collect()
            }
        };
        Crowd { users: users.leak(), order: order.into() }
    }

    /// The users of one of `tasks` tasks. Each starts at another place in the order.
    pub(crate) fn draws(&self, task: usize, tasks: usize) -> Draws {
        Draws { crowd: self.clone(), at: task * (Crowd::DRAWS / tasks) }
    }
}

/// Key numbers by Zipf's law: the n-th key is drawn 1 / n as often as the first.
fn zipf() -> Vec<u16> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        })
        .collect();
    let mut draws = Clients::new(1, u32::MAX);
    let mut draw = || {
        let share = f64::from(draws.draw()) / f64::from(u32::MAX);
        sums.partition_point(|below| *below <= share * sum) as u16
    };
    (0..Crowd::DRAWS).map(|_| draw()).collect()
}

#[derive(Debug)]
pub(crate) struct Draws {
    crowd: Crowd,
    at: usize,
}

impl Draws {
    pub(crate) fn draw(&mut self) -> &'static User {
        let user = &self.crowd.users[usize::from(self.crowd.order[self.at])];
        self.at = (self.at + 1) % Crowd::DRAWS;
        user
    }
}
