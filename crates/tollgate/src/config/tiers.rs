//! The field `tiers`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use tollgate_core::Quota;

use super::error::Mistake;
use super::limit::LimitConfig;
use super::rate::{CalendarQuota, Rate};
use super::rule::RuleFields;
use super::values::{NamedValues, UnitsOr};

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct TiersFields {
    /// The class of the registry that chooses a tier.
    by: String,
    /// The quota of each tier; a number for requests in flight.
    quotas: NamedValues<UnitsOr<Rate>>,
}

/// Other limits for some requests: [`Rule::tiers`](crate::Rule::tiers).
#[derive(Clone, Debug, PartialEq)]
pub struct TiersConfig<Q> {
    /// The class of the registry that chooses a tier.
    pub by: String,
    /// The limit of each tier.
    pub quotas: BTreeMap<String, Q>,
}

impl<Q: Copy> TiersConfig<Q> {
    /// The same tiers with other limits, each of which may be wrong.
    fn try_map<T>(&self, limit: impl Fn(Q) -> Result<T, String>) -> Result<TiersConfig<T>, Mistake> {
        let limit = |(tier, of): (&String, &Q)| match limit(*of) {
            Ok(limit) => Ok((tier.clone(), limit)),
            Err(error) => Err(Mistake::new("tiers", format!("tier {tier:?} {error}"))),
        };
        let quotas = self.quotas.iter().map(limit).collect::<Result<_, Mistake>>()?;
        Ok(TiersConfig { by: self.by.clone(), quotas })
    }
}

/// The tiers of these fields, if each has a limit as `of` reads it. Otherwise the tier `needs`
/// another.
pub(super) fn read_tiers<Q>(
    fields: &RuleFields,
    needs: &str,
    of: impl Fn(UnitsOr<Rate>) -> Option<Q>,
) -> Result<Option<TiersConfig<Q>>, Mistake> {
    let Some(TiersFields { by, quotas }) = &fields.tiers else { return Ok(None) };
    let tiers = TiersConfig { by: by.clone(), quotas: quotas.0.iter().cloned().collect() };
    tiers.try_map(|limit| of(limit).ok_or_else(|| format!("needs {needs}"))).map(Some)
}

/// Writes tiers as a file has them.
pub(super) fn write_tiers<Q: Copy + Into<UnitsOr<Rate>>, S: Serializer>(
    tiers: &Option<TiersConfig<Q>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let fields = tiers.as_ref().map(|TiersConfig { by, quotas }| TiersFields {
        by: by.clone(),
        quotas: NamedValues(quotas.iter().map(|(tier, limit)| (tier.clone(), (*limit).into())).collect()),
    });
    fields.serialize(serializer)
}

impl LimitConfig {
    /// The tiers of a rule with this window, as quotas.
    pub(super) fn tiers(&self, window: Duration) -> Result<Option<TiersConfig<Quota>>, Mistake> {
        let quota =
            |limit, window| Quota::try_new(limit, window).map_err(|error| format!("is not valid: {error}"));
        match self {
            LimitConfig::Rate { tiers, .. } => Ok(tiers.clone()),
            LimitConfig::Calendar { quota: own, tiers, .. } => {
                let tier = |tier: CalendarQuota| match tier.window == own.window {
                    true => quota(tier.limit, window),
                    false => Err(format!("needs {}", own.window.tier())),
                };
                tiers.as_ref().map(|tiers| tiers.try_map(tier)).transpose()
            }
            LimitConfig::InFlight { tiers, .. } => {
                let tier = |limit| quota(limit, Quota::DEFAULT_TTL);
                tiers.as_ref().map(|tiers| tiers.try_map(tier)).transpose()
            }
        }
    }
}
