//! What a request costs, and what corrects its charge.

use serde::Serialize;
use tollgate_core::Share;

use super::error::{Mistake, refuse};
use super::rule_fields::RuleFields;
use super::values::{Units, UnitsOr, text_if_any};

/// What a request costs before its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "kebab-case")]
pub enum CostConfig {
    /// A number of units.
    Units {
        /// At least 1.
        cost: u64,
    },
    /// A cost of the registry: [`Rule::cost`](crate::Rule::cost).
    Named {
        /// Its name.
        cost: String,
    },
    /// An estimate, which is settled later: [`Rule::reserve`](crate::Rule::reserve).
    Reserved {
        /// The name of a cost of the registry.
        reserve: String,
        /// The largest estimate, as a share of the capacity.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_if_any")]
        reserve_at_most: Option<Share>,
    },
}

/// What corrects a charge by the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorrectionConfig {
    /// The name of a condition of the registry: [`Rule::count_if`](crate::Rule::count_if).
    CountIf(String),
    /// The name of a response cost of the registry: [`Rule::cost_by`](crate::Rule::cost_by).
    CostBy(String),
}

impl CostConfig {
    pub(super) fn of(fields: &RuleFields) -> Result<Option<CostConfig>, Mistake> {
        let reserve_at_most = fields.reserve_at_most.map(|share| share.0);
        let is_twice = fields.reserve.is_some() && fields.cost.is_some();
        refuse(is_twice, "reserve", "it takes the place of cost: remove one of them")?;
        let nothing_reserved = "it bounds the estimate of reserve, which is missing: name a cost of the registry there, or \
                                remove this";
        refuse(reserve_at_most.is_some() && fields.reserve.is_none(), "reserve-at-most", nothing_reserved)?;
        Ok(match (&fields.cost, fields.reserve.clone()) {
            (_, Some(reserve)) => Some(CostConfig::Reserved { reserve, reserve_at_most }),
            (Some(UnitsOr::Units(Units(cost))), None) => Some(CostConfig::Units { cost: *cost }),
            (Some(UnitsOr::Value(cost)), None) => Some(CostConfig::Named { cost: cost.clone() }),
            (None, None) => None,
        })
    }
}

impl CorrectionConfig {
    pub(super) fn of(fields: &RuleFields) -> Result<Option<CorrectionConfig>, Mistake> {
        Ok(match (fields.count_if.clone(), fields.cost_by.clone()) {
            (Some(_), Some(_)) => {
                return Err(Mistake::new("cost-by", "it takes the place of count-if: remove one of them"));
            }
            (condition, cost) => {
                condition.map(CorrectionConfig::CountIf).or(cost.map(CorrectionConfig::CostBy))
            }
        })
    }
}
