//! What a limiter is asked of one of its policies.

use tollgate_core::Key;

use crate::rule::Limit;

/// What a [`Limiter`](crate::Limiter) is asked of one of its policies: so many units for a key. A
/// tuple of the three says the same. The limit may come with the question, such as from a row that
/// the caller has read:
///
/// ```
/// use tollgate::{Key, Limit, Limiter, Policy, Question, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
/// let limits = Limiter::new([
///     Policy::new("requests", Quota::per_minute(60)),
///     Policy::new("tokens", Quota::per_minute(10_000)),
/// ]);
/// let tenant = Key::from("acme");
///
/// // What the tenant's row says.
/// let (requests, tokens) = (Limit::Unlimited, Limit::Of(Quota::per_minute(50_000)));
/// let permit = limits
///     .check_each(&[
///         Question::new("requests", &tenant, 1).limit(requests),
///         Question::new("tokens", &tenant, 800).limit(tokens),
///     ])
///     .await?;
/// assert_eq!(permit.report().get("tokens").unwrap().1.remaining(), 49_200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub(super) policy: &'a str,
    pub(super) key: &'a Key,
    pub(super) cost: u64,
    pub(super) limit: Limit,
}

impl<'a> Question<'a> {
    /// Asks the policy with this name for `cost` units for `key`.
    pub fn new(policy: &'a str, key: &'a Key, cost: u64) -> Question<'a> {
        Question { policy, key, cost, limit: Limit::Own }
    }

    /// Takes this limit in place of the policy's own. A quota must have the window of the policy,
    /// and its algorithm and the store must allow it. All quotas of a policy share the state of a
    /// key: a key whose limit changes keeps what it has used.
    #[must_use]
    pub fn limit(self, limit: impl Into<Limit>) -> Question<'a> {
        Question { limit: limit.into(), ..self }
    }
}

/// Asks for one unit.
impl<'a> From<(&'a str, &'a Key)> for Question<'a> {
    fn from((policy, key): (&'a str, &'a Key)) -> Question<'a> {
        Question::new(policy, key, 1)
    }
}

impl<'a> From<(&'a str, &'a Key, u64)> for Question<'a> {
    fn from((policy, key, cost): (&'a str, &'a Key, u64)) -> Question<'a> {
        Question::new(policy, key, cost)
    }
}
