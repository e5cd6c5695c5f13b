//! What rules are made of.

use super::Rule;

/// One [`Rule`] or several: an array, a `Vec`, any iterator. None by [`Rules::none`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a rule nor a list of rules",
    label = "no rule",
    note = "a policy becomes a rule by the key that divides its quota among callers: `.by(PeerIp::new())`, \
            `.by(header(\"x-api-key\"))`, or `.by(global())` for one quota that all share",
    note = "`by` is a method of the trait `tollgate::PolicyExt`; the module `tollgate::extract` lists the extractors"
)]
pub trait IntoRules {
    /// Returns the rules, in their order.
    fn into_rules(self) -> impl Iterator<Item = Rule>;

    /// Whether there may be none. A list that is empty is a mistake, since nothing would be
    /// limited.
    fn may_be_none(&self) -> bool {
        false
    }
}

impl IntoRules for Rule {
    fn into_rules(self) -> impl Iterator<Item = Rule> {
        std::iter::once(self)
    }
}

// Otherwise the compiler asks for an iterator where a policy has no key.
#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item = Rule>> IntoRules for I {
    fn into_rules(self) -> impl Iterator<Item = Rule> {
        self.into_iter()
    }
}

/// The rules of a layer that has none: every request passes. A list without rules is [a
/// mistake](crate::SetupError::NoRules) instead.
///
/// ```
/// use tollgate::layer::Rules;
/// use tollgate::{Quota, Policy, PolicyExt, RateLimitLayer, extract::PeerIp};
///
/// // Until a control plane pushes some.
/// let layer = RateLimitLayer::new(Rules::none());
/// layer.replace(Policy::new("api", Quota::per_minute(60)).by(PeerIp::new()))?;
/// assert_eq!(layer.replace(Rules::none())?.to_string(), "version 3: \"api\" removed");
/// # Ok::<(), tollgate::SetupError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rules(());

impl Rules {
    /// No rules.
    pub const fn none() -> Rules {
        Rules(())
    }
}

// The compiler does not offer it to those whose policy has no key.
#[diagnostic::do_not_recommend]
impl IntoRules for Rules {
    fn into_rules(self) -> impl Iterator<Item = Rule> {
        std::iter::empty()
    }

    fn may_be_none(&self) -> bool {
        true
    }
}
