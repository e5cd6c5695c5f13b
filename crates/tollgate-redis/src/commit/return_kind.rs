//! The kinds of entries that go back to a store, or are kept there.

/// Which queue and which connection carry an entry. They are apart, so that a slot never waits for
/// refunds, and the release of a slot never waits for renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReturnKind {
    /// Slots that come back.
    Release,
    /// Slots that are kept.
    Renewal,
    /// Units that come back, and keys that are reset.
    Refund,
}
