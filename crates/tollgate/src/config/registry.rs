//! The closures that a file names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tollgate_core::Key;

use super::error::Mistake;
use super::exemption::ExemptionText;
use super::key::is_own_name;
use super::name::is_name;
use crate::charge::ResponseHead;
use crate::errors::Reason;
use crate::extract::{ClientIp, Head, KeyExtractor};
use crate::rule::exempt::Exemption;
use crate::rule::{IntoLimit, Limit};

type ByName<T> = BTreeMap<String, Arc<T>>;

pub(super) type RequestCost = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
pub(super) type RequestClass = dyn Fn(&Head<'_>, &Key) -> Option<Cow<'static, str>> + Send + Sync;
pub(super) type LimitByRequest = dyn Fn(&Head<'_>, &Key) -> Result<Limit, Reason> + Send + Sync;
pub(super) type Counts = dyn Fn(&ResponseHead<'_>) -> bool + Send + Sync;
pub(super) type ResponseCost = dyn Fn(&ResponseHead<'_>) -> u64 + Send + Sync;

/// The closures of an application, by the names that its file of rules has for them.
///
/// A second closure of one kind and name replaces the first.
///
/// ```
/// use tollgate::config::{Registry, RuleFile};
/// use tollgate::extract::{ClientIp, extension};
/// use tollgate::{Head, Key, RateLimitLayer};
///
/// // Inserted into the extensions by an outer authentication layer.
/// #[derive(Clone)]
/// struct Caller { id: u64, plan: &'static str }
///
/// let registry = Registry::new()
///     .client_ip(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]))
///     .key("user", extension(|caller: &Caller| caller.id))
///     .class("plan", |head: &Head<'_>, _: &Key| Some(head.extensions().get::<Caller>()?.plan));
/// let file = RuleFile::from_toml(r#"
/// [[rule]]
/// name = "api"
/// quota = "60/min"
/// by = "user | ip"
/// tiers = { by = "plan", quotas = { pro = "600/min" } }
/// "#)?;
/// let layer = RateLimitLayer::try_new(registry.rules(&file)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    pub(super) keys: BTreeMap<String, Arc<dyn KeyExtractor>>,
    pub(super) costs: ByName<RequestCost>,
    pub(super) classes: ByName<RequestClass>,
    pub(super) quotas: ByName<LimitByRequest>,
    pub(super) conditions: ByName<Counts>,
    pub(super) response_costs: ByName<ResponseCost>,
    pub(super) exemptions: ByName<dyn Exemption>,
    pub(super) client_ip: Option<ClientIp>,
    /// The fields that rules must have, by the names of these rules.
    pub(super) required: BTreeMap<String, Vec<&'static str>>,
    /// Whether it has a closure for any name, which checks a file without the application.
    pub(super) any_name: bool,
    /// Whether keys are for output.
    pub(super) hides_secrets: bool,
}

impl Registry {
    /// A registry without closures.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// A registry that has closures of all names, for checks of a file without its application.
    ///
    /// ```
    /// use tollgate::config::{Registry, RuleFile};
    ///
    /// let text = "[[rule]]\nname = \"api\"\nquota = \"5/s burst 9\"\nby = \"user\"";
    /// let file = RuleFile::from_toml(text)?;
    /// assert!(Registry::new().rules(&file).is_err());
    /// assert_eq!(Registry::of_any_name().rules(&file)?[0].policy().capacity(), 9);
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn of_any_name() -> Registry {
        Registry { any_name: true, ..Registry::default() }
    }

    /// A key for the field `by`.
    ///
    /// # Panics
    /// If the name is one of the file's own, such as `ip`, or has other characters than `a` to `z`,
    /// `0` to `9`, `-` and `_`, or no letter.
    #[must_use]
    #[track_caller]
    pub fn key(mut self, name: &str, extractor: impl KeyExtractor) -> Registry {
        let is_free = is_name(name) && !is_own_name(name);
        assert!(is_free, "key {name:?}: choose another name, of a to z, 0 to 9, - and _");
        self.keys.insert(name.to_owned(), Arc::new(extractor));
        self
    }

    /// A cost for the fields `cost` and `reserve`.
    #[must_use]
    pub fn cost(mut self, name: &str, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Registry {
        self.costs.insert(name.to_owned(), Arc::new(cost));
        self
    }

    /// A closure that names the class of a request, for the fields `tiers` and `leaving`. See
    /// [`Rule::tiers`](crate::Rule::tiers) for what happens to a request without one.
    #[must_use]
    pub fn class<T: Into<Cow<'static, str>>>(
        mut self,
        name: &str,
        class: impl Fn(&Head<'_>, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Registry {
        let class = move |head: &Head<'_>, key: &Key| class(head, key).map(Into::into);
        self.classes.insert(name.to_owned(), Arc::new(class));
        self
    }

    /// A limit that requests bring along, for the field `quota-by`: see
    /// [`Rule::quota`](crate::Rule::quota).
    #[must_use]
    pub fn quota<L: IntoLimit>(
        mut self,
        name: &str,
        quota: impl Fn(&Head<'_>, &Key) -> L + Send + Sync + 'static,
    ) -> Registry {
        self.quotas.insert(name.to_owned(), Arc::new(move |head, key| quota(head, key).into_limit()));
        self
    }

    /// A condition on responses for the field `count-if`: see
    /// [`Rule::count_if`](crate::Rule::count_if).
    #[must_use]
    pub fn count_if(
        mut self,
        name: &str,
        counts: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Registry {
        self.conditions.insert(name.to_owned(), Arc::new(counts));
        self
    }

    /// A cost in responses for the field `cost-by`: see [`Rule::cost_by`](crate::Rule::cost_by).
    #[must_use]
    pub fn cost_by(
        mut self,
        name: &str,
        cost: impl Fn(&ResponseHead<'_>) -> u64 + Send + Sync + 'static,
    ) -> Registry {
        self.response_costs.insert(name.to_owned(), Arc::new(cost));
        self
    }

    /// An exemption for the field `exempt`.
    ///
    /// # Panics
    /// If the name is one of the file's own: `cors-preflight`, an address or a network. Or if it
    /// has other characters than `a` to `z`, `0` to `9`, `-` and `_`, or no letter.
    #[must_use]
    #[track_caller]
    pub fn exempt(mut self, name: &str, exemption: impl Exemption) -> Registry {
        let is_free = matches!(name.parse(), Ok(ExemptionText::Named(_)));
        assert!(is_free, "exemption {name:?}: choose another name");
        self.exemptions.insert(name.to_owned(), Arc::new(exemption));
        self
    }

    /// Requires a rule with this name, which has these fields and is not in shadow. Name the rules
    /// here that handlers name, as in [`Charges::of`](crate::charge::Charges::of): a file that
    /// renames or removes one is refused, also if it is [followed](Registry::open).
    ///
    /// ```
    /// use tollgate::config::{Registry, RuleFile};
    ///
    /// let registry = Registry::new().require("api", []).require("log-ins", ["block"]);
    /// let rule = |name: &str| format!("[[rule]]\nname = \"{name}\"\nquota = \"5/min\"\nby = \"ip\"\n");
    /// let file = RuleFile::from_toml(&(rule("api") + &rule("log-ins")))?;
    /// assert_eq!(
    ///     registry.rules(&file).unwrap_err().to_string(),
    ///     "line 5, rule \"log-ins\", block: missing: the application needs it"
    /// );
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn require(mut self, rule: &str, fields: impl IntoIterator<Item = &'static str>) -> Registry {
        self.required.entry(rule.to_owned()).or_default().extend(fields);
        self
    }

    /// Makes `ip` and exempt networks those of the client behind proxies. Otherwise they are those
    /// of the connection.
    #[must_use]
    pub fn client_ip(self, client: ClientIp) -> Registry {
        Registry { client_ip: Some(client), ..self }
    }

    pub(super) fn address(&self) -> Option<&ClientIp> {
        self.client_ip.as_ref()
    }

    pub(super) fn find_key(&self, name: &str) -> Result<Arc<dyn KeyExtractor>, String> {
        if self.any_name {
            return Ok(Arc::new(|_: &Head<'_>| Some(Key::global())));
        }
        self.keys.get(name).cloned().ok_or_else(|| names(&self.keys))
    }

    /// The closure that a field names, or `any` if this registry has all names.
    pub(super) fn find<T: ?Sized>(
        &self,
        closures: &ByName<T>,
        field: &'static str,
        kind: &str,
        name: &str,
        any: Arc<T>,
    ) -> Result<Arc<T>, Mistake> {
        let unknown = || format!("{name:?} is not {kind}: the registry has {}", names(closures));
        match closures.get(name) {
            _ if self.any_name => Ok(any),
            Some(closure) => Ok(Arc::clone(closure)),
            None => Err(Mistake::new(field, unknown())),
        }
    }
}

fn names<T>(closures: &BTreeMap<String, T>) -> String {
    match closures.is_empty() {
        true => "none".to_owned(),
        false => closures.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("keys", &self.keys.keys()).finish_non_exhaustive()
    }
}
