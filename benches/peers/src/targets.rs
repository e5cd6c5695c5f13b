//! The ratios that tollgate aims for, and whether a report meets them.

use crate::contenders::OURS;
use crate::report::Report;
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) met: bool,
    pub(crate) aim_met: bool,
}

impl Target {
    const fn new(scenario: Scenario, fields: bool, at_most: f64, aim: Option<Aim>) -> Target {
        Target { scenario, fields, peer: scenario.yardstick(), at_most, aim }
    }

    /// `None` if one of the two was not measured.
    pub(crate) fn standing(&self, report: &Report, threads: usize) -> Option<Standing> {
        let ours = report.added(OURS, self.fields, self.scenario, threads)?;
        let theirs = report.added(self.peer, self.fields, self.scenario, threads)?;
        let aim_met = match self.aim {
            Some(Aim::Times(times)) => ours <= times * theirs,
            Some(Aim::Nanos(nanos)) => ours <= nanos,
            None => false,
        };
        Some(Standing { ours, theirs, met: ours <= self.at_most * theirs, aim_met })
    }
}
