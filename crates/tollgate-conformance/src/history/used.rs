//! What was used of units that were granted.

/// How many units were used of those that were granted.
#[derive(Clone, Copy, Debug)]
pub enum Used {
    /// So many more.
    Beyond(u64),
    /// So many less, at most all.
    Short(u64),
}

impl Used {
    /// The units that were used of `granted` ones.
    pub fn of(self, granted: u64) -> u64 {
        match self {
            Used::Beyond(more) => granted.saturating_add(more),
            Used::Short(less) => granted.saturating_sub(less),
        }
    }
}
