//! The ratios that tollgate aims for.

use crate::contenders::Part;
use crate::scenario::Scenario;

/// The most that a part of tollgate may add, as a multiple of what that of its yardstick adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) scenario: Scenario,
    pub(crate) part: Part,
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
    Target::new(Scenario::AllowedHot, Part::Layer, 0.75, Some(Aim::Times(0.5))),
    Target::new(Scenario::AllowedCold, Part::Layer, 0.75, Some(Aim::Times(0.5))),
    Target::new(Scenario::DeniedHot, Part::Layer, 0.35, Some(Aim::Nanos(300.0))),
    Target::new(Scenario::AllowedHot, Part::LayerWithoutFields, 1.3, None),
    Target::new(Scenario::AllowedCold, Part::LayerWithoutFields, 1.3, None),
];

impl Target {
    const fn new(scenario: Scenario, part: Part, at_most: f64, aim: Option<Aim>) -> Target {
        Target { scenario, part, at_most, aim }
    }
}
