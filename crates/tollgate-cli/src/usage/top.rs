//! `tollgate usage top` and `denied`.

use tollgate::usage::top_keys::KeyUsage;

use super::args::{TopArgs, failed};
use crate::chart::human;
use crate::output::printable;
use crate::table::table;
use crate::values::shown_key;

/// The table of the keys with the most decisions of this outcome.
pub(super) async fn table_of(args: &TopArgs, outcome: &str) -> Result<String, String> {
    let (usage, last) = (args.source.usage().await?, args.source.last);
    let keys = usize::try_from(args.keys).unwrap_or(usize::MAX);
    let top = if outcome == "denied" {
        usage.top_denied(keys, last).await
    } else {
        usage.top_allowed(keys, last).await
    };
    let top = top.map_err(failed)?;
    if top.is_empty() {
        return Ok(args.source.nothing(outcome));
    }
    let row = |of: &KeyUsage| {
        let [count, at_least, at_most] = [of.count, of.at_least, of.at_most].map(human);
        [shown_key(&of.key), printable(&of.policy), count, at_least, at_most]
    };
    let rows: Vec<_> = top.iter().map(row).collect();
    Ok(table(&["key", "policy", outcome, "at least", "at most"], &rows))
}
