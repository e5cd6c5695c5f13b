//! The field `block`.

use serde::{Deserialize, Serialize};
use tollgate_core::TimeSpan;

#[cfg(test)]
use super::values::AsText;
use super::values::text;

/// Blocks a key after so many denials: [`Rule::block_after`](crate::Rule::block_after).
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct BlockConfig {
    /// How many denials within one window start a block.
    pub after: u32,
    /// How long it lasts.
    #[serde(rename = "for", with = "text")]
    #[cfg_attr(test, schemars(with = "AsText<TimeSpan>"))]
    pub time: TimeSpan,
}
