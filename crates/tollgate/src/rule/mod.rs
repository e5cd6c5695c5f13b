//! A rule: a policy, its key extractor, and the cost of a request.

mod choice;
mod classes;
pub mod exempt;
mod in_flight;
mod into_rules;
mod limit;
mod request_quota;
pub(crate) mod response_head;
mod settling;
mod shadow;
mod tiers;
pub(crate) mod variants;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Key, Policy, Quota};

use crate::errors::{Reason, SetupError, or_panic};
use crate::extract::{Head, KeyExtractor};

use classes::Classes;
use exempt::Exemption;
use in_flight::SlotTimes;
use request_quota::RequestLimit;
use settling::Settling;
use tiers::Tiers;

pub use into_rules::{IntoRules, Rules};
pub use limit::{IntoLimit, Limit};

/// Makes a [`Policy`] a [`Rule`].
pub trait PolicyExt {
    /// Gives each key that `extractor` finds in a request a quota of its own. The extractor is one
    /// of [`extract`](crate::extract), or a closure `Fn(&Head) -> Option<Key>`.
    fn by(self, extractor: impl KeyExtractor) -> Rule;
}

impl PolicyExt for Policy {
    fn by(self, extractor: impl KeyExtractor) -> Rule {
        Rule {
            policy: self,
            extractor: Arc::new(extractor),
            cost: None,
            settling: Settling::default(),
            slot_times: SlotTimes::default(),
            missing_key: MissingKey::default(),
            limit: None,
            tiers: None,
            classes: None,
            exemptions: Vec::new(),
            without_fields: false,
            is_shadow: false,
            paths: None,
            text: None,
        }
    }
}

type Cost = dyn Fn(&Head<'_>) -> u64 + Send + Sync;

/// A [`Policy`] with a key extractor and a cost: what a layer or a
/// [`RequestLimiter`](crate::RequestLimiter) enforces.
///
/// ```
/// use http::Method;
/// use tollgate::extract::header;
/// use tollgate::{Head, MissingKey, Policy, PolicyExt, Quota};
///
/// let rule = Policy::new("daily", Quota::per_day(5_000))
///     .by(header("x-api-key"))
///     .cost(|head: &Head<'_>| if head.method() == Method::POST { 5 } else { 1 })
///     .on_missing_key(MissingKey::OneKey);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    policy: Policy,
    extractor: Arc<dyn KeyExtractor>,
    cost: Option<Arc<Cost>>,
    settling: Settling,
    slot_times: SlotTimes,
    missing_key: MissingKey,
    limit: Option<Arc<RequestLimit>>,
    tiers: Option<Tiers>,
    classes: Option<Classes>,
    exemptions: Vec<Arc<dyn Exemption>>,
    without_fields: bool,
    is_shadow: bool,
    /// The only paths to which it may apply, or the beginnings of paths before `*`.
    paths: Option<Arc<[Box<str>]>>,
    /// `None` unless it is from a file.
    text: Option<Arc<RuleText>>,
}

/// What a file says of a rule.
struct RuleText {
    /// What its extractor reads.
    key: String,
    /// All of its fields, in JSON.
    fields: String,
}

/// What happens to a request in which a rule finds no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "config", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "config", serde(rename_all = "kebab-case"))]
#[cfg_attr(all(test, feature = "config"), derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum MissingKey {
    /// The request is refused, and nothing is charged. The default: omitting a header must not lift
    /// a limit.
    #[default]
    Refuse,
    /// This rule does not apply to the request; the other rules do.
    Skip,
    /// All such requests share one key, [`Key::global`].
    OneKey,
}

impl Rule {
    /// Sets the cost of a request in units, instead of 1. A cost of 0 always passes and shows the
    /// state. A cost above [`Policy::largest_cost`] is refused as never possible.
    ///
    /// The closure runs for every request that reaches the rule, before anything is charged.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Rule {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Sets what happens to a request without a key; [`MissingKey::Refuse`] by default.
    pub fn on_missing_key(mut self, missing_key: MissingKey) -> Rule {
        self.missing_key = missing_key;
        self
    }

    /// Gives some requests another quota, under the policy's name and algorithm: by plan, tenant,
    /// route or method. The closure sees the request and its key, and returns the name of the tier.
    /// No response contains that name.
    ///
    /// **An unknown tier is never unlimited.** If the closure returns `None`, or a name that is not
    /// in `quotas`, the policy's own quota applies. A caller without limit must be
    /// [exempt](Rule::exempt).
    ///
    /// **Callers choose a tier that is read from a header**, unless an outer layer has checked it.
    ///
    /// Tiers of one window share the state of a key. A caller that changes tier keeps its usage:
    /// GCRA keeps its debt in time, up to a bucket used up, and the windows keep their counts: see
    /// [`PolicyNumbers::version_burst`](tollgate_core::PolicyNumbers::version_burst). A tier of
    /// another window has a state of its own. To count routes or methods separately, put them into
    /// the key: `.by((PeerIp::new(), method()))`.
    ///
    /// Thousands of tiers cost a few comparisons of names. A closure that returns a `&'static str`
    /// or an `Arc<str>` saves a copy of the name for each request. It runs once the request has a
    /// key, also a shared one.
    ///
    /// ```
    /// use tollgate::extract::header;
    /// use tollgate::{Head, Key, Policy, PolicyExt, Quota};
    ///
    /// #[derive(Clone, Copy)]
    /// enum Plan { Free, Pro, Enterprise }
    ///
    /// // Inserted into the extensions by an outer authentication layer.
    /// let plan = |head: &Head<'_>, _: &Key| match head.extensions().get::<Plan>()? {
    ///     Plan::Free => None,
    ///     Plan::Pro => Some("pro"),
    ///     Plan::Enterprise => Some("enterprise"),
    /// };
    /// let rule = Policy::new("api", Quota::per_minute(60))
    ///     .by(header("x-api-key"))
    ///     .tiers([("pro", Quota::per_minute(600)), ("enterprise", Quota::per_minute(6_000))], plan);
    /// ```
    ///
    /// The tiers of a policy of [requests in flight](Policy::in_flight) have its time to live: say
    /// `Quota::in_flight(50)`.
    ///
    /// Each call replaces the tiers of the call before.
    ///
    /// # Panics
    /// If [`Rule::try_tiers`] would return an error.
    #[track_caller]
    pub fn tiers<N: AsRef<str>, T: AsRef<str>>(
        self,
        quotas: impl IntoIterator<Item = (N, Quota)>,
        tier: impl Fn(&Head<'_>, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Rule {
        let name = self.policy.name().to_owned();
        or_panic(self.try_tiers(quotas, tier).map_err(|error| format!("policy {name:?}: {error}")))
    }

    /// [`Rule::tiers`] for quotas that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError`] if there are no tiers, if a name is empty or not unique, or if the policy's
    /// algorithm does not allow a quota.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use tollgate::extract::extension;
    /// use tollgate::{Head, Key, Policy, PolicyExt, Quota, SetupError};
    ///
    /// #[derive(Clone)]
    /// struct Tenant(Arc<str>);
    ///
    /// // For example from a configuration file.
    /// let quotas =
    ///     vec![("acme".to_owned(), Quota::per_hour(100_000)), ("acme".to_owned(), Quota::per_hour(5))];
    /// let rule = Policy::new("tenant", Quota::per_hour(1_000))
    ///     .by(extension(|tenant: &Tenant| Key::from(&*tenant.0)))
    ///     .try_tiers(quotas, |head: &Head<'_>, _: &Key| head.extensions().get::<Tenant>().map(|tenant| tenant.0.clone()));
    /// assert_eq!(rule.unwrap_err(), SetupError::TierTwice("acme".to_owned()));
    /// ```
    pub fn try_tiers<N: AsRef<str>, T: AsRef<str>>(
        self,
        quotas: impl IntoIterator<Item = (N, Quota)>,
        tier: impl Fn(&Head<'_>, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Rule, SetupError> {
        let tiers = Tiers::try_new(&self.policy, quotas, tier)?;
        let rule = Rule { tiers: Some(tiers), ..self };
        rule.try_variants()?;
        Ok(rule)
    }

    /// Ignores some requests: this rule needs no key of them and does not charge them; the other
    /// rules do. The exemption is one of [`exempt`](crate::exempt), or a closure `Fn(&Head) ->
    /// bool`. Calls add up.
    ///
    /// **Attackers can use an exemption by what callers write**: see
    /// [`exempt`](crate::exempt#which-callers-to-believe).
    ///
    /// ```
    /// use tollgate::exempt::{cors_preflight, from_networks};
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Policy, PolicyExt, Quota};
    ///
    /// let rule = Policy::new("api", Quota::per_minute(60))
    ///     .by(PeerIp::new())
    ///     .exempt(cors_preflight())
    ///     .exempt(from_networks(PeerIp::new(), ["203.0.113.0/24", "2001:db8:1::/48"]));
    /// ```
    pub fn exempt(mut self, exemption: impl Exemption) -> Rule {
        self.exemptions.push(Arc::new(exemption));
        self
    }

    /// Blocks a key for a `time` after so many refusals by this rule: [`Policy::block_after`] says
    /// more. A blocked key is refused with [`Reason::Blocked`](crate::Reason::Blocked) by this
    /// rule, whatever its tier or class is. [`RequestLimiter`](crate::RequestLimiter::unblock)
    /// lifts a block. Another time is for new blocks.
    ///
    /// Choose more refusals than a client makes that obeys `Retry-After`, and count by what a
    /// stranger cannot write: a stranger who sends requests with a key has that key blocked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Policy, PolicyExt, Quota};
    ///
    /// let rule = Policy::new("api", Quota::per_minute(60))
    ///     .by(PeerIp::new())
    ///     .block_after(1_000, Duration::from_secs(600));
    /// ```
    ///
    /// # Panics
    /// If [`Policy::try_block_after`] would return an error.
    #[track_caller]
    pub fn block_after(mut self, refusals: u32, time: Duration) -> Rule {
        self.policy = self.policy.block_after(refusals, time);
        self
    }

    /// Leaves this rule and its [tiers](Rule::tiers) out of the [`Fields`](crate::Fields) of
    /// responses. It limits as before.
    ///
    /// What is left of a quota says what other callers of the same key did. With a rule by user
    /// name, a stranger would see that someone else tries to log in.
    ///
    /// A refusal by this rule still names its policy and has `Retry-After`. A [`Report`] and a
    /// [`Denial`] contain the rule.
    ///
    /// ```
    /// use tollgate::extract::{PeerIp, extension_ref};
    /// use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
    ///
    /// #[derive(Clone)]
    /// struct UserName(String);
    ///
    /// let layer = RateLimitLayer::new([
    ///     Policy::new("address", Quota::per_hour(100)).by(PeerIp::new()),
    ///     Policy::new("user", Quota::per_hour(20))
    ///         .by(extension_ref(|UserName(name): &UserName| name.as_str()))
    ///         .without_fields(),
    /// ]);
    /// ```
    ///
    /// [`Denial`]: crate::Denial
    /// [`Report`]: crate::Report
    pub fn without_fields(mut self) -> Rule {
        self.without_fields = true;
        self
    }

    /// Returns the policy of callers without a [tier](Rule::tiers).
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the key by which this rule counts a request. `None` if the rule does not apply to
    /// the request, or if the request is refused because it has no key.
    ///
    /// ```
    /// use tollgate::extract::header;
    /// use tollgate::{Head, Key, Policy, PolicyExt, Quota};
    ///
    /// let rule = Policy::new("api", Quota::per_second(5)).by(header("x-api-key"));
    /// let request = http::Request::get("/").header("x-api-key", "k1").body(()).unwrap();
    /// assert_eq!(rule.key(&Head::from(&request)), Some(Key::from("k1")));
    /// ```
    pub fn key(&self, head: &Head<'_>) -> Option<Key> {
        if self.is_exempt(head) {
            return None;
        }
        self.key_or_else(self.find(head)).ok()
    }

    /// Whether the rule ignores a request: see [`Rule::exempt`].
    ///
    /// ```
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Head, Policy, PolicyExt, Quota};
    ///
    /// let rule = Policy::new("api", Quota::per_second(5)).by(PeerIp::new());
    /// let rule = rule.exempt(|head: &Head<'_>| head.uri().path() == "/health");
    /// let request = http::Request::get("/health").body(()).unwrap();
    /// assert!(rule.is_exempt(&Head::from(&request)));
    /// ```
    pub fn is_exempt(&self, head: &Head<'_>) -> bool {
        self.exemptions.iter().any(|exemption| exemption.exempts(head))
    }

    /// The same rule, which is looked at only for requests with these paths, or with paths that
    /// begin as these before `*`. An [exemption](Rule::exempt) must exempt all others, too.
    #[cfg(any(test, feature = "config"))]
    pub(crate) fn only_on<'a>(self, paths: impl IntoIterator<Item = &'a str>) -> Rule {
        Rule { paths: Some(paths.into_iter().map(Box::from).collect()), ..self }
    }

    /// The same rule, which is from a file that says this of its key, and this in JSON in all.
    #[cfg(feature = "config")]
    pub(crate) fn with_text(self, key: String, fields: String) -> Rule {
        Rule { text: Some(Arc::new(RuleText { key, fields })), ..self }
    }

    pub(crate) fn key_text(&self) -> Option<&str> {
        self.text.as_ref().map(|text| &*text.key)
    }

    pub(crate) fn fields_text(&self) -> Option<&str> {
        self.text.as_ref().map(|text| &*text.fields)
    }

    /// Whether it differs from another rule in what is no policy, as far as that can be compared:
    /// what files say of both, or else what is no closure.
    pub(crate) fn differs_otherwise(&self, other: &Rule) -> bool {
        if let (Some(text), Some(others)) = (self.fields_text(), other.fields_text()) {
            return text != others;
        }
        let compared = |rule: &Rule| {
            (
                (rule.missing_key, rule.without_fields, rule.slot_times),
                (rule.cost.is_some(), rule.limit.is_some(), rule.exemptions.len()),
                (rule.reserves(), rule.of_response().is_some()),
            )
        };
        compared(self) != compared(other)
    }

    /// The paths to which it is confined.
    pub(crate) fn paths(&self) -> Option<impl Iterator<Item = &str>> {
        self.paths.as_ref().map(|paths| paths.iter().map(|path| &**path))
    }

    /// Checks whether its settings fit together, which no plan changes.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.check_shadow()?;
        self.check_settling()?;
        self.check_slots()?;
        Ok(())
    }

    pub(crate) fn is_shadow(&self) -> bool {
        self.is_shadow
    }

    pub(crate) fn is_without_fields(&self) -> bool {
        self.without_fields
    }

    /// The key that the extractor finds in this request.
    #[inline]
    pub(crate) fn find(&self, head: &Head<'_>) -> Option<Key> {
        // Dereferenced: `Arc` is an extractor itself, which would only add a call.
        (*self.extractor).extract(head)
    }

    pub(crate) fn why_missing(&self, head: &Head<'_>) -> Reason {
        self.extractor.why_missing(head)
    }

    /// Returns the cost of a request, or its [estimate](Rule::reserve), under one of the rule's
    /// policies. A [`Report`](crate::Report) has that of the request's tier.
    ///
    /// ```
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Head, Policy, PolicyExt, Quota};
    ///
    /// let rule = Policy::new("api", Quota::per_second(5)).by(PeerIp::new()).cost(|_| 3);
    /// let request = http::Request::get("/").body(()).unwrap();
    /// assert_eq!(rule.cost_of(&Head::from(&request), rule.policy()), 3);
    /// ```
    pub fn cost_of(&self, head: &Head<'_>, policy: &Policy) -> u64 {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        match policy {
            _ if policy.is_in_flight() => cost.min(1),
            _ if policy.numbers().is_reserved() => self.settling.estimate(cost, policy),
            _ => cost,
        }
    }

    /// The policies of its tiers.
    fn tiers_policies(&self) -> &[Policy] {
        self.tiers.as_ref().map_or(&[], Tiers::policies)
    }

    /// The index of the tier of a request.
    fn tier(&self, head: &Head<'_>, key: &Key) -> Option<usize> {
        self.tiers.as_ref()?.choose(head, key)
    }

    /// Whether the only thing that it needs of a request is its key.
    pub(crate) fn is_only_a_key(&self) -> bool {
        self.policy.numbers().denials_until_block().is_none()
            && self.cost.is_none()
            && self.limit.is_none()
            && self.tiers.is_none()
            && self.classes.is_none()
            && self.exemptions.is_empty()
    }

    /// The key, or that of requests without one, or why there is none.
    #[inline]
    pub(crate) fn key_or_else(&self, key: Option<Key>) -> Result<Key, MissingKey> {
        match key {
            Some(key) if !key.is_empty() => Ok(key),
            _ if self.missing_key == MissingKey::OneKey => Ok(Key::global()),
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
