//! A policy, whose key it counts by, and what a request costs there.

mod rules;
mod tiers;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tollgate_core::{Key, Policy, Quota};

use crate::exempt::Exemption;
use crate::extract::{Head, KeyExtractor};
use crate::problem::Reason;

use tiers::Tiers;

pub use rules::RulesError;
pub(crate) use rules::{Ask, Asked, Asks, Rules, asked, asked_alone};
pub use tiers::TiersError;

/// Makes a [`Policy`] a [`Rule`].
pub trait PolicyExt {
    /// Divides the quota by the key that `extractor` finds in each request: one of [`extract`](crate::extract), or a
    /// closure `Fn(&Parts) -> Option<Key>`.
    fn by(self, extractor: impl KeyExtractor) -> Rule;
}

impl PolicyExt for Policy {
    fn by(self, extractor: impl KeyExtractor) -> Rule {
        Rule {
            policy: self,
            extractor: Arc::new(extractor),
            cost: None,
            missing_key: MissingKey::default(),
            tiers: None,
            exemptions: Vec::new(),
        }
    }
}

type Cost = dyn Fn(&Parts) -> u32 + Send + Sync;

/// A [`Policy`] with a key extractor and a cost: what a layer or a [`Limiter`](crate::Limiter) enforces.
///
/// ```
/// use http::{Method, request::Parts};
/// use tollgate::extract::header;
/// use tollgate::{MissingKey, Policy, PolicyExt, Quota};
///
/// let rule = Policy::new("daily", Quota::per_day(5_000))
///     .by(header("x-api-key"))
///     .cost(|parts: &Parts| if parts.method == Method::POST { 5 } else { 1 })
///     .on_missing_key(MissingKey::Share);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    policy: Policy,
    extractor: Arc<dyn KeyExtractor>,
    cost: Option<Arc<Cost>>,
    missing_key: MissingKey,
    tiers: Option<Tiers>,
    exemptions: Vec<Arc<dyn Exemption>>,
}

/// What happens to a request in which a rule finds no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is refused, before anything is charged. The default, since leaving out a header must not lift a limit.
    #[default]
    Refuse,
    /// This rule does not apply to it; the other rules do.
    Skip,
    /// All such requests share one key.
    Share,
}

impl Rule {
    /// The units that a request costs, instead of 1. A cost of 0 passes always and shows the state; one above
    /// [`Policy::largest_cost`] is refused as never possible.
    ///
    /// The closure runs for every request that reaches the rule, before anything is charged.
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Rule {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// What happens to a request in which no key is found; [`MissingKey::Refuse`] by default.
    pub fn on_missing_key(mut self, missing_key: MissingKey) -> Rule {
        self.missing_key = missing_key;
        self
    }

    /// Gives some requests another quota than the policy's own, under the policy's name and algorithm: by a caller's plan,
    /// by tenant, by route, by method. The closure sees the request and the key that it is counted by, and returns the name
    /// of its tier, which nobody else is told.
    ///
    /// **An unknown tier is never unlimited**: where the closure returns `None`, or a name that is not among `quotas`, the
    /// policy's own quota stands. Whoever is to have no limit is [exempt](Rule::exempt), by name.
    ///
    /// **A tier by a header is the caller's to choose**, unless something outside of the layer has checked it.
    ///
    /// The tier is part of what is asked, not of the key. Among tiers of one window, a key has one state: a caller who changes
    /// his tier keeps what he used (GCRA keeps his debt in time, the windows keep their counts). A tier of another window has
    /// a state of its own. Where routes or methods are to be counted apart, put them into the key as well:
    /// `.by((PeerIp::new(), method()))`.
    ///
    /// Thousands of tiers are found by a few comparisons of their names. A closure that returns a `&'static str` or an
    /// `Arc<str>` spares a copy of the name for each request. It runs where a key was found, or is shared.
    ///
    /// A [`Limiter`](crate::Limiter) that is shown a request's parts asks for the quota of its tier; one that is given a key
    /// knows of no request, and asks for the policy's own.
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::extract::header;
    /// use tollgate::{Key, Policy, PolicyExt, Quota};
    ///
    /// #[derive(Clone, Copy)]
    /// enum Plan { Free, Pro, Enterprise }
    ///
    /// // Left in the extensions by the layer that knows the caller.
    /// let plan = |parts: &Parts, _: &Key| match parts.extensions.get::<Plan>()? {
    ///     Plan::Free => None,
    ///     Plan::Pro => Some("pro"),
    ///     Plan::Enterprise => Some("enterprise"),
    /// };
    /// let rule = Policy::new("api", Quota::per_minute(60))
    ///     .by(header("x-api-key"))
    ///     .tiers([("pro", Quota::per_minute(600)), ("enterprise", Quota::per_minute(6_000))], plan);
    /// ```
    ///
    /// Of several calls the last one stands.
    ///
    /// # Panics
    /// If [`Rule::try_tiers`] would return an error.
    pub fn tiers<N: AsRef<str>, T: AsRef<str>>(
        self,
        quotas: impl IntoIterator<Item = (N, Quota)>,
        tier: impl Fn(&Parts, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Rule {
        let name = self.policy.name().to_owned();
        self.try_tiers(quotas, tier).unwrap_or_else(|error| panic!("policy {name:?}: {error}"))
    }

    /// [`Rule::tiers`] for quotas that are known only at run time.
    ///
    /// # Errors
    /// [`TiersError`] if there are none, if a name is empty or there twice, or if a quota does not fit the policy's
    /// algorithm.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use http::request::Parts;
    /// use tollgate::extract::extension;
    /// use tollgate::{Key, Policy, PolicyExt, Quota, TiersError};
    ///
    /// #[derive(Clone)]
    /// struct Tenant(Arc<str>);
    ///
    /// // As a configuration may have it.
    /// let quotas = vec![("acme".to_owned(), Quota::per_hour(100_000)), ("acme".to_owned(), Quota::per_hour(5))];
    /// let rule = Policy::new("tenant", Quota::per_hour(1_000))
    ///     .by(extension(|tenant: &Tenant| Key::from(&*tenant.0)))
    ///     .try_tiers(quotas, |parts: &Parts, _: &Key| parts.extensions.get::<Tenant>().map(|tenant| tenant.0.clone()));
    /// assert_eq!(rule.unwrap_err(), TiersError::NameTwice("acme".to_owned()));
    /// ```
    pub fn try_tiers<N: AsRef<str>, T: AsRef<str>>(
        self,
        quotas: impl IntoIterator<Item = (N, Quota)>,
        tier: impl Fn(&Parts, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Rule, TiersError> {
        let plain = self.tiers.as_ref().map_or(&self.policy, |tiers| &tiers.plain);
        let (tiers, own) = Tiers::try_new(plain, quotas, tier)?;
        Ok(Rule { policy: own, tiers: Some(tiers), ..self })
    }

    /// Leaves some requests alone: this rule neither asks them for a key nor charges them; the other rules do. One of
    /// [`exempt`](crate::exempt), or a closure `Fn(&Parts) -> bool`. Called several times, each exempts.
    ///
    /// **An exemption by what callers can write is a hole**: see [`exempt`](crate::exempt#whom-to-believe).
    ///
    /// ```
    /// use tollgate::exempt::{cors_preflight, from_networks};
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Policy, PolicyExt, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::extract::TrustError> {
    /// let rule = Policy::new("api", Quota::per_minute(60))
    ///     .by(PeerIp::new())
    ///     .exempt(cors_preflight())
    ///     .exempt(from_networks(PeerIp::new(), ["203.0.113.0/24", "2001:db8:1::/48"])?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn exempt(mut self, exemption: impl Exemption) -> Rule {
        self.exemptions.push(Arc::new(exemption));
        self
    }

    /// The policy of all who are in no [tier](Rule::tiers).
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether a part of this rule is a function of a request's parts.
    fn needs_parts(&self) -> bool {
        self.cost.is_some()
            || self.tiers.is_some()
            || self.extractor.needs_parts()
            || self.exemptions.iter().any(|exemption| exemption.needs_parts())
    }

    /// Whether it asks one unit of its own policy for the key that it finds, and has no say besides.
    fn is_only_a_key(&self) -> bool {
        self.cost.is_none() && self.tiers.is_none() && self.exemptions.is_empty()
    }

    fn is_exempt(&self, head: &Head<'_>) -> bool {
        self.exemptions.iter().any(|exemption| exemption.exempts_head(head))
    }

    /// What the extractor finds in this request.
    #[inline]
    pub(crate) fn find(&self, head: &Head<'_>) -> Option<Key> {
        // Its own, and not that of the `Arc`, which would only pass it on.
        (*self.extractor).extract_from(head)
    }

    pub(crate) fn why_missing(&self, head: &Head<'_>) -> Reason {
        self.extractor.why_missing(head)
    }

    /// The key of this request, or what happens without one.
    #[inline]
    fn key(&self, head: &Head<'_>) -> Result<Key, MissingKey> {
        self.key_or_else(self.find(head))
    }

    fn cost_of(&self, parts: &Parts) -> u32 {
        self.cost.as_ref().map_or(1, |cost| cost(parts))
    }

    /// The policies of its tiers.
    fn tiers_policies(&self) -> &[Policy] {
        self.tiers.as_ref().map_or(&[], Tiers::policies)
    }

    /// The place among them of the tier that a request is in.
    fn tier(&self, parts: &Parts, key: &Key) -> Option<usize> {
        self.tiers.as_ref()?.choose(parts, key)
    }

    #[inline]
    pub(crate) fn key_or_else(&self, key: Option<Key>) -> Result<Key, MissingKey> {
        match key {
            Some(key) if !key.is_empty() => Ok(key),
            _ if self.missing_key == MissingKey::Share => Ok(Key::global()),
            _ => Err(self.missing_key),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("policy", &self.policy)
            .field("missing_key", &self.missing_key)
            .finish_non_exhaustive()
    }
}
