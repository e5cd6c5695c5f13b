//! What becomes of rules when a file replaces an earlier one.

use tollgate::config::{Registry, RuleFile};
use tollgate::layer::RuleChange;
use tollgate::{RateLimitLayer, SetupError};

/// The rules that change, in the order of their names, as a layer replaces them. A rule with
/// another key starts again too.
pub(super) fn changes(earlier: &RuleFile, next: &RuleFile) -> Result<Vec<(String, RuleChange)>, String> {
    let any = Registry::of_any_name();
    let rules = |file| any.rules(file).map_err(|error| error.to_string());
    let refused = |error: SetupError| error.to_string();
    let layer = RateLimitLayer::try_new(rules(earlier)?).map_err(refused)?;
    let changes = layer.replace(rules(next)?).map_err(refused)?;
    let mut changes: Vec<_> = changes.iter().map(|(name, change)| (name.to_owned(), change)).collect();
    changes.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(changes)
}
