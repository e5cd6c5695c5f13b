//! The figures over Redis that tollgate aims for, and whether a figure meets them.

use super::scenario::Scenario;

/// A lower or upper bound of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) scenario: Scenario,
    pub(crate) figure: Figure,
    pub(crate) bound: f64,
    /// A stricter, optional goal.
    pub(crate) aim: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// At least this many decisions per second, relative to the yardstick.
    Speed,
    /// At most this median time of a decision, relative to the yardstick.
    Latency,
    /// At most this many microseconds of the server's processor time per decision.
    ServerMicros,
}

const fn target(scenario: Scenario, figure: Figure, bound: f64, aim: Option<f64>) -> Target {
    Target { scenario, figure, bound, aim }
}

pub(crate) const TARGETS: [Target; 7] = [
    target(Scenario::Uniform64, Figure::Speed, 0.75, Some(1.0)),
    target(Scenario::Uniform512, Figure::Speed, 0.85, Some(1.0)),
    target(Scenario::Uniform64, Figure::ServerMicros, 2.5, Some(2.0)),
    target(Scenario::Uniform512, Figure::ServerMicros, 2.5, Some(2.0)),
    target(Scenario::Hot, Figure::Speed, 5.0, None),
    target(Scenario::Zipf, Figure::Speed, 1.1, Some(1.5)),
    target(Scenario::Latency, Figure::Latency, 1.3, None),
];

impl Target {
    pub(crate) fn is_met(&self, shown: f64) -> bool {
        self.reaches(shown, self.bound)
    }

    pub(crate) fn aim_is_met(&self, shown: f64) -> bool {
        self.aim.is_some_and(|aim| self.reaches(shown, aim))
    }

    fn reaches(&self, shown: f64, bound: f64) -> bool {
        match self.figure {
            Figure::Speed => shown >= bound,
            Figure::Latency | Figure::ServerMicros => shown <= bound,
        }
    }
}
