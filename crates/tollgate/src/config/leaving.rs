//! The field `leaving`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::values::units_by_name;
#[cfg(test)]
use super::values::{NamedValues, Units};

/// Classes of requests that leave units to others: [`Rule::leaving`](crate::Rule::leaving).
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct LeavingConfig {
    /// The class of the registry.
    pub by: String,
    /// How many units each class leaves to others.
    #[serde(deserialize_with = "units_by_name")]
    #[cfg_attr(test, schemars(with = "NamedValues<Units>"))]
    pub units: BTreeMap<String, u64>,
}
