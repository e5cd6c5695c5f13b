//! How sliding logs are laid out in Redis.

/// How [`Algorithm::SlidingLog`](tollgate_core::Algorithm::SlidingLog) lays out its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlidingLogLayout {
    /// A list, the default: small, and the fastest.
    #[default]
    List,
    /// A sorted set, whose entries can be looked at and searched by time; it takes up to twelve times the memory.
    SortedSet,
}
