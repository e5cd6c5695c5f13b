//! What a row of data says of a limit.

use std::str::FromStr;

use tollgate_core::{Quota, TextError};

use crate::errors::Reason;

/// What a row of a table, a configuration entry or a token says of a limit.
///
/// Nothing is unlimited by mistake: what a `0`, a `-1` or a missing value means is for the
/// application to say, and a row that cannot be read is an error, never one of these four.
///
/// ```
/// use tollgate::{Limit, Quota, QuotaError};
///
/// /// `-1` is unlimited and `0` nothing at all. Without a number, the rule's own quota applies.
/// fn limit(per_minute: Option<i64>) -> Result<Limit, QuotaError> {
///     Ok(match per_minute {
///         None => Limit::Own,
///         Some(-1) => Limit::Unlimited,
///         Some(0) => Limit::Nothing,
///         // A negative number is an error, as a quota of 0 is.
///         Some(n) => Limit::Of(Quota::try_per_minute(n.try_into().unwrap_or(0))?),
///     })
/// }
///
/// assert_eq!(limit(Some(60)), Ok(Limit::Of(Quota::per_minute(60))));
/// assert!(limit(Some(-2)).is_err());
/// // The same as text: a quota, `unlimited`, `none` or `own`.
/// assert_eq!("60/min".parse(), Ok(Limit::Of(Quota::per_minute(60))));
/// assert_eq!("none".parse(), Ok(Limit::Nothing));
/// ```
///
/// [`Rule::quota`](crate::Rule::quota) takes it from a request, [`Question::limit`] from a caller
/// of a [`Limiter`](crate::Limiter).
///
/// [`Question::limit`]: crate::Question::limit
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The quota of the rule itself, or of its tier.
    #[default]
    Own,
    /// This quota, in place of the rule's own.
    Of(Quota),
    /// None: the rule is left out, as for a request that is exempt. It charges nothing and counts
    /// nothing. If it is limited later, the caller has used nothing.
    Unlimited,
    /// Nothing at all. The request is refused before anything is charged, also if it costs nothing,
    /// with [`Reason::NothingAllowed`](crate::Reason::NothingAllowed).
    Nothing,
}

/// What a closure says of a limit: a [`Limit`], a quota, or an option or a result of these. `None`
/// is [`Limit::Own`], and an error refuses the request.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a limit", label = "no `Limit`, and no `Quota`")]
pub trait IntoLimit {
    /// Returns the limit.
    ///
    /// # Errors
    /// [`Reason::InvalidLimit`] if it cannot be read.
    fn into_limit(self) -> Result<Limit, Reason>;
}

impl IntoLimit for Limit {
    fn into_limit(self) -> Result<Limit, Reason> {
        Ok(self)
    }
}

impl IntoLimit for Quota {
    fn into_limit(self) -> Result<Limit, Reason> {
        Ok(Limit::Of(self))
    }
}

impl<L: IntoLimit> IntoLimit for Option<L> {
    fn into_limit(self) -> Result<Limit, Reason> {
        self.map_or(Ok(Limit::Own), L::into_limit)
    }
}

impl<L: IntoLimit, E> IntoLimit for Result<L, E> {
    fn into_limit(self) -> Result<Limit, Reason> {
        self.map_or(Err(Reason::InvalidLimit), L::into_limit)
    }
}

impl From<Quota> for Limit {
    fn from(quota: Quota) -> Limit {
        Limit::Of(quota)
    }
}

/// `None` is [`Limit::Own`].
impl<L: Into<Limit>> From<Option<L>> for Limit {
    fn from(limit: Option<L>) -> Limit {
        limit.map_or(Limit::Own, Into::into)
    }
}

/// A quota such as `100/min`, `unlimited`, `none` for nothing at all, or `own` for the rule's own.
impl FromStr for Limit {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Limit, TextError> {
        Ok(match text {
            "unlimited" => Limit::Unlimited,
            "none" => Limit::Nothing,
            "own" => Limit::Own,
            quota => Limit::Of(quota.parse().map_err(|error: TextError| match error.text() == text {
                true => error.or("unlimited, none or own"),
                false => error,
            })?),
        })
    }
}
