//! The mistakes that constructors find.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::{Policy, PolicyError, Quota, QuotaError};

/// The reason why settings are refused: the error of every `try_` method of this crate.
///
/// A [`Quota`], a [`Policy`] and a [`Share`](crate::Share) have errors of their own, which `?`
/// converts:
///
/// ```
/// use tollgate::extract::header;
/// use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer, SetupError};
///
/// fn layer(limit: u64, burst: u64) -> Result<RateLimitLayer, SetupError> {
///     let policy = Policy::try_new("api", Quota::try_per_minute(limit)?.try_burst(burst)?)?;
///     RateLimitLayer::try_new(policy.by(header("x-user")))
/// }
///
/// assert!(layer(100, 20).is_ok());
/// assert_eq!(layer(0, 20).unwrap_err().to_string(), "a quota's limit must be at least 1");
/// ```
///
/// [`Quota`]: crate::Quota
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// A policy, its quota or a share of it cannot be made.
    InvalidPolicy(PolicyError),
    /// There are no rules and no policies: nothing would be limited. A layer whose rules come later
    /// has [none](crate::layer::Rules::none).
    NoRules,
    /// Two policies have this name. Names identify policies in responses and stored states.
    PolicyTwice(String),
    /// The store cannot enforce this policy. The policy of a tier has the name of its rule and the
    /// quota of the tier.
    Unsupported(Policy, PolicyError),
    /// A rule has an empty list of tiers.
    NoTiers,
    /// A tier's name is empty.
    UnnamedTier,
    /// Two tiers of a rule have this name.
    TierTwice(String),
    /// The algorithm of the rule's policy does not allow the quota of the tier with this name.
    TierQuota(String, PolicyError),
    /// A rule has an empty list of classes that leave units to others.
    NoClasses,
    /// The name of a class is empty.
    UnnamedClass,
    /// Two classes of a rule have this name.
    ClassTwice(String),
    /// The class with this name would leave nothing of the quota, or of a tier's, to itself.
    ClassQuota(String, PolicyError),
    /// The charges of this rule cannot be corrected after the work: those of a leaky bucket have
    /// delayed later requests already, slots come back by themselves, and the debt of a bucket
    /// would take longer than 2^52 µs to pay.
    NoDebt(String),
    /// This rule bounds an estimate, and reserves none.
    NothingReserved(String),
    /// This rule says how long a request waits for a slot or holds it, and its policy is not one of
    /// [requests in flight](crate::Policy::in_flight).
    NotInFlight(String),
    /// This rule is in [shadow](crate::Rule::shadow), and it is of requests in flight or corrects
    /// its charges: what follows a decision would have to follow it too.
    NotInShadow(String),
    /// No policy of the limiter has this name: of a `try_` method that names one, such as
    /// [`Limiter::try_block`](crate::Limiter::try_block). With the names that it has.
    UnknownPolicy(String, Vec<String>),
    /// This policy is asked twice in one set.
    AskedTwice(String),
    /// The limit of a [`Question`](crate::Question) is a quota that this policy does not allow: it
    /// has another window, or the algorithm or the store does not allow it.
    QuotaNotAllowed(String, Quota),
    /// This policy blocks no keys: see [`Policy::block_after`].
    NoBlocks(String),
    /// A text is neither a network in CIDR notation nor an address.
    NotANetwork(String),
    /// There is no network to trust. The header would never be read, and all clients of a proxy
    /// would share one quota.
    NoNetworks,
    /// A store's timeout of zero, which no store over a network can keep.
    ZeroTimeout,
    /// A circuit breaker counts 1 to [`CircuitBreaker::MEMORY`](crate::CircuitBreaker::MEMORY)
    /// failures and answers, and no more failures than answers.
    BreakerFailures,
    /// The first wait of a circuit breaker is below 1 ms, or its longest wait is below the first.
    BreakerWait,
    /// A lease of no units.
    LeaseOfNothing,
    /// The life of a lease is outside of 1 ms to [`Lease::LONGEST`](crate::Lease::LONGEST).
    LeaseLife(Duration),
    /// The IANA database has no such time zone, of a `CalendarWindow`.
    UnknownZone(String),
    /// A week or a month has no such day, or the window of the calendar is a day.
    Anchor {
        /// The day.
        day: u8,
        /// The last day that is allowed. 0 if the window is a day.
        most: u8,
    },
    /// The file with this path cannot be read, or its rules are not valid.
    File(PathBuf, String),
    /// A handler asks for a [`Report`](crate::Report) or a [`Charge`](crate::Charge) that no layer
    /// inserted. With the feature `axum` this is an answer: a 500 without a body, since the missing
    /// call is a mistake in the server, and only the log names it.
    MissingExtension(&'static str),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::InvalidPolicy(error) => error.fmt(f),
            SetupError::NoRules => f.write_str(
                "no rules: nothing would be limited; if a layer is meant to have none, write `Rules::none()`",
            ),
            SetupError::PolicyTwice(name) => write!(f, "two rules have the name {name:?}"),
            SetupError::Unsupported(policy, error) => {
                let (name, quota) = (policy.name(), policy.quota());
                let (limit, window) = (quota.limit(), quota.window());
                write!(f, "the store cannot enforce the policy {name:?} of {limit} in {window:?}: {error}")
            }
            SetupError::NoTiers => f.write_str("no tiers: all callers would have the rule's own quota"),
            SetupError::UnnamedTier => f.write_str("a tier has no name"),
            SetupError::TierTwice(name) => write!(f, "two tiers have the name {name:?}"),
            SetupError::TierQuota(name, error) => write!(f, "tier {name:?}: {error}"),
            SetupError::NoClasses => f.write_str("no classes: no request would leave units to others"),
            SetupError::UnnamedClass => f.write_str("a class has no name"),
            SetupError::ClassTwice(name) => write!(f, "two classes have the name {name:?}"),
            SetupError::ClassQuota(name, error) => write!(f, "class {name:?}: {error}"),
            SetupError::NoDebt(name) => write!(
                f,
                "policy {name:?}: the charges of a leaky bucket, of requests in flight, or of a bucket that takes 71 \
                 years to fill, cannot be corrected: choose another algorithm, or remove reserve, count_if and cost_by"
            ),
            SetupError::NothingReserved(name) => {
                write!(f, "policy {name:?}: reserve_at_most bounds the estimate of reserve, which is missing")
            }
            SetupError::NotInFlight(name) => write!(
                f,
                "policy {name:?}: wait_at_most and held_at_most are for slots: make it with Policy::in_flight, or remove \
                 them"
            ),
            SetupError::NotInShadow(name) => write!(
                f,
                "policy {name:?}: a rule of requests in flight, or with reserve, count_if or cost_by, cannot be in shadow"
            ),
            SetupError::UnknownPolicy(name, names) => {
                write!(f, "the limiter has no policy {name:?}: its policies are {names:?}")
            }
            SetupError::AskedTwice(name) => write!(f, "the policy {name:?} is asked twice"),
            SetupError::QuotaNotAllowed(name, quota) => write!(
                f,
                "the policy {name:?} does not allow the quota {quota}: it has another window, or the \
                 algorithm or the store does not allow it"
            ),
            SetupError::NoBlocks(name) => write!(f, "the policy {name:?} blocks no keys: see `block_after`"),
            SetupError::NotANetwork(text) => {
                write!(f, "{text:?} is neither a network such as 10.0.0.0/8 nor an address")
            }
            SetupError::NoNetworks => f.write_str("no networks to trust: the header would never be read"),
            SetupError::ZeroTimeout => f.write_str("a store's timeout must be longer than zero"),
            SetupError::BreakerFailures => f.write_str(
                "a circuit breaker counts 1 to 128 failures and answers, and no more failures than answers",
            ),
            SetupError::BreakerWait => f.write_str(
                "a circuit breaker's first wait must be at least 1 ms, and the longest no shorter than the first",
            ),
            SetupError::LeaseOfNothing => f.write_str("a lease must have at least 1 unit, got 0"),
            SetupError::LeaseLife(life) => write!(f, "a lease must last 1 ms to 60s, got {life:?}"),
            SetupError::UnknownZone(zone) => {
                write!(f, "{zone:?} is not a time zone of the IANA database, such as UTC or Europe/Berlin")
            }
            SetupError::Anchor { most: 0, .. } => f.write_str("only a week or a month has a first day"),
            SetupError::Anchor { day, most: 7 } => {
                write!(f, "day {day} is not one of a week: 1 (Monday) to 7 (Sunday)")
            }
            SetupError::Anchor { day, most } => write!(f, "day {day} is not one of a month: 1 to {most}"),
            SetupError::File(path, reason) => write!(f, "{}: {reason}", path.display()),
            SetupError::MissingExtension(what) => write!(f, "a handler asks for {what}"),
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SetupError::TierQuota(_, error) | SetupError::ClassQuota(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<PolicyError> for SetupError {
    fn from(error: PolicyError) -> SetupError {
        SetupError::InvalidPolicy(error)
    }
}

impl From<QuotaError> for SetupError {
    fn from(error: QuotaError) -> SetupError {
        SetupError::InvalidPolicy(error.into())
    }
}

/// Returns the value, or panics with the error at the caller's caller. A closure of
/// `unwrap_or_else` would name this crate instead.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T, impl fmt::Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
