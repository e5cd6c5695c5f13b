//! `tollgate usage oldest`, `newest` and `total`, for policies that track usage.

use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use tollgate::usage::{KeyTotal, Totals};
use tollgate_core::Timestamp;

use super::args::{TotalsArgs, failed};
use crate::chart::human;
use crate::output::printable;
use crate::redis_args::PREFIX;
use crate::table::table;
use crate::values::shown_key;

/// Which keys come first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Oldest,
    Newest,
    Total,
}

/// Returns a line for each key, or one that says that there is none.
pub(super) async fn table_of(args: &TotalsArgs, order: Order) -> Result<String, String> {
    let totals = Totals::new(args.redis.connect(PREFIX).await?);
    let (policy, keys) = (&args.policy, usize::try_from(args.keys).unwrap_or(usize::MAX));
    let rows = match order {
        Order::Oldest => totals.oldest(policy, keys, None).await,
        Order::Newest => totals.newest(policy, keys, None).await,
        Order::Total => totals.by_total(policy, keys, None).await,
    };
    let rows = rows.map_err(failed)?;
    if rows.is_empty() {
        let (prefix, policy) = (args.redis.prefix.as_deref().unwrap_or(PREFIX), printable(policy));
        return Ok(format!("no usage of policy {policy} was tracked, under the prefix {prefix}\n"));
    }
    let row = |of: &KeyTotal| [shown_key(&of.key), human(of.total), utc(of.last_use)];
    let rows: Vec<_> = rows.iter().map(row).collect();
    Ok(table(&["key", "total", "last use (UTC)"], &rows))
}

/// Date and time, to the second.
fn utc(time: Timestamp) -> String {
    let text = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(time.as_micros())).to_string();
    text.replace('T', " ").trim_end_matches('Z').to_owned()
}
