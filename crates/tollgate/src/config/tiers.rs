//! The field `tiers`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::error::Mistake;
use super::rate::Rate;
use super::rule_fields::{RuleFields, TiersFields};
use super::values::{NamedValues, UnitsOr};

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
    pub(super) fn try_map<T>(
        &self,
        limit: impl Fn(Q) -> Result<T, String>,
    ) -> Result<TiersConfig<T>, Mistake> {
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
