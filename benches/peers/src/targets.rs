//! The ratios that tollgate aims for.

use crate::scenario::Scenario;

/// The most that tollgate may add, as a multiple of what the peer adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) scenario: Scenario,
    pub(crate) fields: bool,
    pub(crate) peer: &'static str,
    pub(crate) at_most: f64,
    /// A stricter, optional goal.
    pub(crate) aim: Option<Aim>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    Times(f64),
    Nanos(f64),
}

pub(crate) const TARGETS: [Target; 5] = [
    Target::new(Scenario::AllowedHot, true, 0.75, Some(Aim::Times(0.5))),
    Target::new(Scenario::AllowedCold, true, 0.75, Some(Aim::Times(0.5))),
    Target::new(Scenario::DeniedHot, true, 0.35, Some(Aim::Nanos(300.0))),
    Target::new(Scenario::AllowedHot, false, 1.3, None),
    Target::new(Scenario::AllowedCold, false, 1.3, None),
];

impl Target {
    const fn new(scenario: Scenario, fields: bool, at_most: f64, aim: Option<Aim>) -> Target {
        Target { scenario, fields, peer: scenario.yardstick(), at_most, aim }
    }
}
