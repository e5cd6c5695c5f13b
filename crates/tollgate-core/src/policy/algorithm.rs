//! Which algorithm enforces a quota.

use std::time::Duration;

use crate::policy::Boundaries;

/// The algorithm that enforces a quota. The [module `algorithm`](crate::algorithm) says what each
/// guarantees, what it costs and when to choose it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// The token bucket, computed as the generic cell rate algorithm. The default.
    #[default]
    Gcra,
    /// The leaky bucket as a queue. It delays a request until it conforms, for at most `max_wait`
    /// (rounded down to a microsecond). The burst defaults to 1.
    LeakyBucket {
        /// The longest delay. A request that would wait longer is denied.
        max_wait: Duration,
    },
    /// A count that restarts with each window.
    FixedWindow {
        /// `true`: windows begin at multiples of their length since the epoch, for all callers at
        /// once. `false`: a window begins with the caller's first request.
        aligned: bool,
    },
    /// A count that restarts with each window, where windows differ in length: months, or days with
    /// a change of the clocks. The window of the quota is only the one that the `RateLimit-Policy`
    /// field and the scope name. No window of the calendar should be longer by more than an eighth.
    ///
    /// A window ends where it would have when its first unit was charged. So other boundaries apply
    /// from the end of the running window on.
    CalendarWindow {
        /// When windows begin. The type `CalendarWindow` of the crate tollgate computes them.
        boundaries: Boundaries,
    },
    /// Two counts. The previous window's is weighted by the part that the sliding window covers.
    SlidingWindow,
    /// A ring of sub-windows, each window / `buckets` long.
    SlidingBuckets {
        /// The number of sub-windows in a window: 1 to [`Algorithm::MAX_BUCKETS`].
        buckets: u32,
    },
    /// An entry for every charge.
    SlidingLog {
        /// The largest limit that a policy may have, since the log may keep an entry for each
        /// unit. It is 100,000 for [`Algorithm::SLIDING_LOG`], and a log never takes more than
        /// `u32::MAX`.
        max_limit: u32,
    },
    /// A number of requests in flight. Its units come back when their requests end, and not with
    /// time: [`Policy::in_flight`](crate::Policy::in_flight). The window of the quota is the time
    /// to live. A request costs 0 or 1.
    InFlight,
    /// Refuses a key for a time, the window of the quota, once it is blocked. Otherwise it allows
    /// each request and charges nothing.
    /// [`PolicyNumbers::block`](crate::PolicyNumbers::block) makes policies of it.
    Block,
}

impl Algorithm {
    /// The token bucket: another name for [`Algorithm::Gcra`].
    pub const TOKEN_BUCKET: Algorithm = Algorithm::Gcra;
    /// Windows that begin with a caller's first request, so callers return at different times.
    pub const FIXED_WINDOW: Algorithm = Algorithm::FixedWindow { aligned: false };
    /// Windows that begin at multiples of their length since the epoch.
    pub const FIXED_WINDOW_ALIGNED: Algorithm = Algorithm::FixedWindow { aligned: true };
    /// Ten sub-windows.
    pub const SLIDING_BUCKETS: Algorithm = Algorithm::SlidingBuckets { buckets: 10 };
    /// A log for limits up to 100,000.
    pub const SLIDING_LOG: Algorithm = Algorithm::SlidingLog { max_limit: 100_000 };
    /// How far back a refund reaches in [`Algorithm::SlidingLog`]: a grant with as many newer times
    /// of charges stays charged. Redis writes all newer times again, and no call may take long.
    pub const REFUNDABLE_TIMES: usize = 1_024;
    /// The largest number of sub-windows of [`Algorithm::SlidingBuckets`].
    pub const MAX_BUCKETS: u32 = 1_000;
    /// The largest limit of [`Algorithm::InFlight`], which keeps an entry for each unit in use.
    pub const MAX_IN_FLIGHT: u64 = 1_000_000;

    /// The algorithm's name in configuration and in stored keys, such as `sliding-window`.
    pub const fn name(&self) -> &'static str {
        match self {
            Algorithm::Gcra => "gcra",
            Algorithm::LeakyBucket { .. } => "leaky-bucket",
            Algorithm::FixedWindow { aligned: false } => "fixed-window",
            Algorithm::FixedWindow { aligned: true } => "fixed-window-aligned",
            Algorithm::CalendarWindow { .. } => "calendar-window",
            Algorithm::SlidingWindow => "sliding-window",
            Algorithm::SlidingBuckets { .. } => "sliding-buckets",
            Algorithm::SlidingLog { .. } => "sliding-log",
            Algorithm::InFlight => "in-flight",
            Algorithm::Block => "block",
        }
    }

    /// Whether each state holds its own end, so that the window of the quota is only for new ones.
    pub(super) fn holds_ends(&self) -> bool {
        matches!(self, Algorithm::InFlight | Algorithm::Block)
    }
}
