//! A request that was charged, with what a refund of it needs.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Stamp, Status};

use crate::report::Report;
use crate::rules::Asks;

/// A request that was charged and may pass.
#[must_use = "a leaky bucket asks for a delay before the request passes: see `delay`"]
pub struct Permit {
    pub(crate) report: Report,
    pub(crate) asks: Asks,
    /// Identify the units that have not been refunded yet.
    pub(crate) stamps: SmallVec<[Stamp; 4]>,
    delay: Duration,
}

impl Permit {
    /// The permit of a set that was granted.
    pub(crate) fn new(report: Report, asks: Asks) -> Permit {
        let stamps = report.statuses().iter().map(Status::stamp).collect();
        let delay = report.verdict().delay();
        Permit { report, asks, stamps, delay }
    }

    /// The permit after its delay.
    pub(crate) fn delayed(self) -> Permit {
        Permit { delay: Duration::ZERO, ..self }
    }

    /// Returns how long to wait before the work: zero unless a
    /// [`LeakyBucket`](crate::Algorithm::LeakyBucket) has reserved a slot that far ahead. Zero for
    /// a permit of [`Limiter::until_ready`](crate::Limiter::until_ready), which has waited.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the state of the rules after the charge.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys, which may be secrets.
        f.debug_struct("Permit").field("report", &self.report).finish_non_exhaustive()
    }
}
