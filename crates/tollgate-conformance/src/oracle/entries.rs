//! A list of grants, each with a label: a time, or the number of a window.

use std::collections::HashSet;

#[derive(Debug, Default)]
pub(super) struct Entries(Vec<Labelled>);

#[derive(Debug)]
struct Labelled {
    label: i128,
    units: i128,
}

impl Entries {
    pub(super) fn push(&mut self, label: i128, units: i128) {
        if units > 0 {
            self.0.push(Labelled { label, units });
        }
    }

    pub(super) fn sum(&self, counts: impl Fn(i128) -> bool) -> i128 {
        self.0.iter().filter(|entry| counts(entry.label)).map(|entry| entry.units).sum()
    }

    pub(super) fn newest(&self) -> Option<i128> {
        self.0.last().map(|entry| entry.label)
    }

    pub(super) fn forget_before(&mut self, label: i128) {
        self.0.retain(|entry| entry.label >= label);
    }

    pub(super) fn relabel(&mut self, new: impl Fn(i128) -> i128) {
        for entry in &mut self.0 {
            entry.label = new(entry.label);
        }
    }

    /// How many different labels are newer than this one.
    pub(super) fn labels_after(&self, label: i128) -> usize {
        let newer: HashSet<i128> =
            self.0.iter().map(|entry| entry.label).filter(|other| *other > label).collect();
        newer.len()
    }

    /// Removes up to `units` of the latest entries.
    pub(super) fn take_newest(&mut self, mut units: i128) {
        for entry in self.0.iter_mut().rev() {
            let back = entry.units.min(units);
            entry.units -= back;
            units -= back;
        }
        self.0.retain(|entry| entry.units > 0);
    }

    /// Removes up to `units` of the entries with this label.
    pub(super) fn take_back(&mut self, label: i128, mut units: i128) {
        for entry in self.0.iter_mut().filter(|entry| entry.label == label) {
            let back = entry.units.min(units);
            entry.units -= back;
            units -= back;
        }
        self.0.retain(|entry| entry.units > 0);
    }
}

/// Entries labelled with the number of an aligned window since the epoch.
#[derive(Debug, Default)]
pub(super) struct Numbered {
    pub(super) entries: Entries,
}

impl Numbered {
    /// Moves to window `number` and forgets all windows before `oldest`. After the clock stepped
    /// back, future entries count in this window.
    pub(super) fn move_to(&mut self, number: i128, oldest: i128) {
        self.entries.relabel(|label| label.min(number));
        self.entries.forget_before(oldest);
        // The merged windows may exceed the largest count of one.
        let excess = self.entries.sum(|label| label == number) - (1 << 41);
        self.entries.take_back(number, excess.max(0));
    }
}
