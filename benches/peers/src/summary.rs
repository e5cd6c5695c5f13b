//! What several runs say together.

use std::fmt;

/// The median of a figure over the runs, and its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

impl Summary {
    /// `None` without a run.
    pub(crate) fn of(runs: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut runs: Vec<f64> = runs.into_iter().collect();
        runs.sort_unstable_by(f64::total_cmp);
        let (&least, &most) = (runs.first()?, runs.last()?);
        let median = f64::midpoint(runs[(runs.len() - 1) / 2], runs[runs.len() / 2]);
        Some(Summary { median, least, most })
    }

    /// Of the ratios that are formed within each run.
    pub(crate) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Summary> {
        Summary::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    }

    /// The lowest and the highest of the runs.
    pub(crate) fn range<T: fmt::Display>(&self, number: impl Fn(f64) -> T) -> String {
        format!("{} to {}", number(self.least), number(self.most))
    }
}

/// A ratio, its median first: `0.67 × (0.65 to 0.70)`. Without the range if all runs agree.
pub(crate) fn times(ratio: Summary) -> String {
    let Summary { median, least, most } = ratio;
    let range = if least < most { format!(" ({})", ratio.range(two_digits)) } else { String::new() };
    format!("{median:.2} ×{range}")
}

pub(crate) fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}
