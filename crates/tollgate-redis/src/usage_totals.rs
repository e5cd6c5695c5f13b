//! The last use and the total of each key: questions of operators, answered by a scan.

use std::collections::BTreeMap;
use std::sync::Arc;

use bb8_redis::redis::cmd;
use tokio::task::JoinSet;
use tollgate_core::{Key, KeyTotal, Timestamp, UsageError, UsageTotals};

use crate::commit::CallContext;
use crate::error::{Cause, Error};
use crate::link::{Master, plain};
use crate::question::{ask, read, scan};
use crate::store::RedisStore;
use crate::wire::names::{Name, escaped};

/// Keeps usage next to the state of a key, as `prefix:2:{key}:policy~usage`, for
/// [30 days](crate::RedisStoreBuilder::keep_usage_for) after the last use. The script that decides
/// records it. [Prices](crate#what-tracked-usage-costs) are in the docs of the crate.
///
/// [`UsageTotals::scan_totals`] scans all key names of the Redis, in steps of 1,000, master by
/// master in a Cluster. There is no index: see [why](crate#what-tracked-usage-costs). While a hash
/// slot moves or a replica takes over, some keys may be missed.
impl UsageTotals for RedisStore {
    async fn total_of(&self, policy: &str, key: &Key) -> Result<Option<KeyTotal>, UsageError> {
        let context = &self.commit().context;
        let key = context.names.bounded(key);
        let (hash_slot, names) = (self.commit().hash_slot(&key), vec![context.names.of_total(&key, policy)]);
        let values = ask(context, |context| values(context, hash_slot, names)).await?;
        Ok(values.into_iter().next().and_then(|(_, value)| total(context.names.text(&key), &value?)))
    }

    async fn scan_totals(
        &self,
        policy: &str,
        mut each: impl FnMut(KeyTotal) + Send,
    ) -> Result<(), UsageError> {
        let context = &self.commit().context;
        for master in
            ask(context, async move |context: Arc<CallContext>| context.link.masters().await).await?
        {
            let mut cursor = 0;
            loop {
                let (master, policy) = (master.clone(), policy.to_owned());
                let (next, totals) = ask(context, |context| step(context, master, policy, cursor)).await?;
                totals.into_iter().for_each(&mut each);
                cursor = next;
                if next == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// One step of a scan. Returns where the next begins, 0 at the end, and the usage of some keys.
async fn step(
    context: Arc<CallContext>,
    master: Master,
    policy: String,
    cursor: u64,
) -> Result<(u64, Vec<KeyTotal>), Error> {
    let (head, tail) = context.names.around_totals(&policy);
    let pattern = format!("{}*{}", escaped(head), escaped(&tail));
    let (next, names) = scan(&context.link, &master, &pattern, cursor).await?;
    let mut of_hash_slot: BTreeMap<u16, Vec<Name>> = BTreeMap::new();
    for name in names.iter().map(|name| Name::listed(name)) {
        of_hash_slot.entry(context.hash_slot_of(&name)).or_default().push(name);
    }
    // A master of a Cluster answers for one hash slot at a time.
    let mut calls: JoinSet<_> = of_hash_slot
        .into_iter()
        .map(|(hash_slot, names)| values(Arc::clone(&context), hash_slot, names))
        .collect();
    let mut totals = Vec::new();
    while let Some(values) = calls.join_next().await {
        for (name, value) in values.map_err(|_| Cause::Stopped)?? {
            let key = name.strip_prefix(head.as_bytes()).and_then(|rest| rest.strip_suffix(tail.as_bytes()));
            // A brace would end the text of the key: the rest belongs to the name of a policy.
            let key = key.and_then(|key| str::from_utf8(key).ok()).filter(|key| !key.contains('}'));
            if let (Some(key), Some(value)) = (key, value) {
                totals.extend(total(key.to_owned(), &value));
            }
        }
    }
    Ok((next, totals))
}

/// The values under some names of one hash slot.
async fn values(
    context: Arc<CallContext>,
    hash_slot: u16,
    names: Vec<Name>,
) -> Result<Vec<(Name, Option<Vec<u8>>)>, Error> {
    let get = plain(cmd("MGET").arg(names.iter().map(|name| &**name).collect::<Vec<&[u8]>>()));
    let values: Vec<Option<Vec<u8>>> = read(context.link.call(hash_slot, &get).await?)?;
    Ok(names.into_iter().zip(values).collect())
}

/// A total, and the last 16 digits with the time of the last use: see track.lua. `None` for a
/// foreign value.
fn total(key: String, value: &[u8]) -> Option<KeyTotal> {
    let text = str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (total, last_use) = text.split_at(text.len().saturating_sub(16));
    let total = if total.is_empty() { 0 } else { total.parse().ok()? };
    Some(KeyTotal { key, total, last_use: Timestamp::from_micros(last_use.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_16_digits_are_the_time_of_the_last_use() {
        let read = |value: &str| total("=ada".to_owned(), value.as_bytes());
        let due = |total, micros| {
            let last_use = Timestamp::from_micros(micros);
            Some(KeyTotal { key: "=ada".to_owned(), total, last_use })
        };
        assert_eq!(read("31767225600000000"), due(3, 1_767_225_600_000_000));
        assert_eq!(read("90071992547409920000000000000007"), due(1 << 53, 7));
        assert_eq!(read("1767225600000000"), due(0, 1_767_225_600_000_000));
        assert_eq!(read("09999999999999999"), due(0, u64::MAX));
        for foreign in ["", "x", "-1", "1.5", "31767225600000000 ", &"9".repeat(40)] {
            assert_eq!(read(foreign), None, "{foreign:?}");
        }
    }
}
