//! Pages of usage: a hash for each minute, with a field for each process.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::cmd;
use tollgate_core::{Key, UsageError, UsageLog};

use crate::commit::CallContext;
use crate::error::Error;
use crate::link::{Text, plain};
use crate::question::{ask, read};
use crate::store::RedisStore;
use crate::wire::numbers::life_in_millis;

/// Keeps the pages of
/// [`tollgate::usage::top_keys`](https://docs.rs/tollgate/latest/tollgate/usage/top_keys/). Keys
/// have the names that they have in the names of states: readable, or as a digest with a
/// [secret](crate::RedisStoreBuilder::secret).
///
/// The pages of a minute are a hash `prefix:2:{usage}:minute`, with a field for each process. They
/// are read 50 at a time, and other calls pass between.
impl UsageLog for RedisStore {
    fn name(&self, key: &Key) -> String {
        let names = &self.commit().context.names;
        names.text(&names.bounded(key))
    }

    async fn write(
        &self,
        minute: u64,
        process: u64,
        page: &str,
        keep_for: Duration,
    ) -> Result<(), UsageError> {
        let page = page.to_owned();
        let millis = life_in_millis(keep_for);
        let write = async move |context: Arc<CallContext>| {
            let name = context.names.of_usage(minute);
            let build = |text: Text| {
                Some(context.command(context.scripts.usage_page(), text, 1, |cmd| {
                    cmd.arg(&*name).arg(process).arg(&page).arg(millis);
                }))
            };
            context.link.call(context.hash_slot_of(&name), &build).await.map(drop)
        };
        Ok(ask(&self.commit().context, write).await?)
    }

    async fn read(&self, minute: u64, mut each: impl FnMut(&str) + Send) -> Result<(), UsageError> {
        // A scan may return a page again.
        let mut processes = HashSet::new();
        let mut cursor = 0;
        loop {
            let step = async move |context: Arc<CallContext>| -> Result<ScannedPages, Error> {
                let name = context.names.of_usage(minute);
                let scan = plain(cmd("HSCAN").arg(&*name).arg(cursor).arg("COUNT").arg(STEP));
                read(context.link.call(context.hash_slot_of(&name), &scan).await?)
            };
            let (next, pages) = ask(&self.commit().context, step).await?;
            for (process, page) in pages {
                if processes.insert(process)
                    && let Ok(page) = str::from_utf8(&page)
                {
                    each(page);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}

/// How many pages Redis returns in one step of a scan, of about 10 kB each.
const STEP: u32 = 50;

/// Where the next step begins, 0 at the end; processes, and their pages.
type ScannedPages = (u64, Vec<(Vec<u8>, Vec<u8>)>);
