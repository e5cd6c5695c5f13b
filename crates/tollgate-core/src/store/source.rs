//! What made a decision.

use std::num::NonZeroU16;

use crate::policy::share::Share;

/// What decided a set of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store itself.
    #[default]
    Store,
    /// Units that this process fetched ahead of demand.
    Lease,
    /// A denial that this process remembers.
    DenyCache,
    /// A fallback, by its share of each quota, because the store failed.
    Fallback,
    /// A failure policy, which let the request pass or refused it, because the store failed.
    FailurePolicy,
    /// A rule that did not apply or found no key. No store was asked.
    Rule,
}

impl Source {
    /// All sources.
    pub const ALL: [Source; 6] = [
        Source::Store,
        Source::Lease,
        Source::DenyCache,
        Source::Fallback,
        Source::FailurePolicy,
        Source::Rule,
    ];

    /// The name in logs and metrics, such as `deny-cache`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::Lease => "lease",
            Source::DenyCache => "deny-cache",
            Source::Fallback => "fallback",
            Source::FailurePolicy => "failure-policy",
            Source::Rule => "rule",
        }
    }
}

/// A source, and the share of a fallback, in one word: every request moves a verdict several times.
///
/// A share is its part in the upper half and what it is a part of in the lower half, neither of
/// them 0. All other sources leave the upper half 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedSource(u32);

impl PackedSource {
    pub(crate) fn of_source(source: Source) -> PackedSource {
        PackedSource(source as u32)
    }

    pub(crate) fn of_share(share: Share) -> PackedSource {
        let (part, of) = share.parts();
        PackedSource(u32::from(part.get()) << 16 | u32::from(of.get()))
    }

    #[inline]
    pub(crate) fn source(self) -> Source {
        match self.0 {
            0 => Source::Store,
            1 => Source::Lease,
            2 => Source::DenyCache,
            4 => Source::FailurePolicy,
            5 => Source::Rule,
            _ => Source::Fallback,
        }
    }

    #[inline]
    pub(crate) fn share(self) -> Option<Share> {
        let [part_high, part_low, of_high, of_low] = self.0.to_be_bytes();
        let part = NonZeroU16::new(u16::from_be_bytes([part_high, part_low]))?;
        Share::of_parts(part, NonZeroU16::new(u16::from_be_bytes([of_high, of_low]))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decider_holds_each_source_and_each_share() {
        for source in Source::ALL {
            let decider = PackedSource::of_source(source);
            assert_eq!((decider.source(), decider.share()), (source, None));
        }
        for (part, of) in [(1, 1), (1, 3), (1, u16::MAX), (u16::MAX, u16::MAX)] {
            let share = Share::new(part, of);
            let decider = PackedSource::of_share(share);
            assert_eq!((decider.source(), decider.share()), (Source::Fallback, Some(share)));
        }
    }
}
