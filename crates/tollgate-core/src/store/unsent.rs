//! What is left when a process stops.

use std::fmt;
use std::ops::AddAssign;

/// What was not sent, or not answered, when a store was [closed](crate::Store::close).
///
/// ```
/// use tollgate_core::Unsent;
///
/// assert_eq!(Unsent::default().to_string(), "nothing is unsent");
/// let mut unsent = Unsent::default();
/// (unsent.corrections, unsent.leased_units) = (1, 250);
/// assert_eq!(unsent.to_string(), "unsent: corrections 1, claims 0, leased units 250");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsent {
    /// Refunds, releases of slots, and charges beyond an estimate that were not sent or not
    /// answered, or that the store failed to execute.
    pub corrections: u64,
    /// Claims of slots without an answer, of all that ask the store. A slot that such a claim is
    /// granted is held until its time to live ends.
    pub claims: u64,
    /// Units of leases, which stay charged.
    pub leased_units: u64,
}

impl Unsent {
    /// Returns whether nothing is left.
    pub fn is_nothing(&self) -> bool {
        *self == Unsent::default()
    }
}

/// With what is left in another store.
impl AddAssign for Unsent {
    fn add_assign(&mut self, Unsent { corrections, claims, leased_units }: Unsent) {
        self.corrections += corrections;
        self.claims += claims;
        self.leased_units += leased_units;
    }
}

/// In one line, for a log.
impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nothing() {
            return f.write_str("nothing is unsent");
        }
        let Unsent { corrections, claims, leased_units } = self;
        write!(f, "unsent: corrections {corrections}, claims {claims}, leased units {leased_units}")
    }
}
