//! The table of all ways to count.

use std::fmt;

use crate::score::Score;
use crate::sim::Mode;

/// The first row is the exact fleet.
pub(crate) struct Table<'a>(pub(crate) &'a [Score]);

const HEAD: [&str; 8] =
    ["", "admitted", "over", "under", "stranded", "round trips/decision", "of its bound", "failed"];

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, HEAD.map(str::to_owned))?;
        writeln!(f, "|:--|--:|--:|--:|--:|--:|--:|--:|")?;
        let exact = self.0.first().map_or(0, |score| score.admitted.len());
        for score in self.0 {
            row(f, cells(score, exact))?;
        }
        writeln!(f)?;
        writeln!(f, "over: admitted, though the limit would have refused it")?;
        writeln!(f, "under: what the exact fleet admitted in addition")?;
        writeln!(f, "stranded: the most units that leases held at once")?;
        writeln!(f, "of its bound: the most that was admitted, as a part of what the mode promises")?;
        write!(f, "failed: without an answer of the store in time")
    }
}

fn cells(score: &Score, exact: usize) -> [String; 8] {
    [
        name(score.mode).to_owned(),
        score.admitted.len().to_string(),
        score.over.to_string(),
        exact.saturating_sub(score.admitted.len()).to_string(),
        score.stranded.to_string(),
        format!("{:.4}", score.round_trips_per_decision()),
        bound(score),
        score.failed.to_string(),
    ]
}

/// A local share promises nothing: a process that crashes starts again with a full share.
fn bound(score: &Score) -> String {
    match score.mode {
        Mode::LocalShare => "-".to_owned(),
        Mode::Exact | Mode::Leases => format!("{:.3}", score.closest.ratio()),
    }
}

fn row(f: &mut fmt::Formatter<'_>, cells: [String; 8]) -> fmt::Result {
    let [name, rest @ ..] = cells;
    write!(f, "| {name:<11} |")?;
    for (cell, head) in rest.iter().zip(&HEAD[1..]) {
        write!(f, " {cell:>width$} |", width = head.len().max(9))?;
    }
    writeln!(f)
}

pub(crate) fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exact => "exact",
        Mode::Leases => "leased",
        Mode::LocalShare => "local share",
    }
}
