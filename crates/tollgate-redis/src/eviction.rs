//! Warnings of a server that evicts what rules rely on when its memory is full.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tollgate_core::Policy;

use crate::link::Link;

/// The `maxmemory-policy` of a server that evicts limits in use.
pub(crate) struct Eviction {
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only the log reads it"))]
    policy: String,
    /// What has been warned of. A policy is checked again for each quota that a request brings.
    warned: Mutex<BTreeSet<String>>,
}

impl Eviction {
    /// That of the first master that evicts limits in use. `None` if there is none, or if the
    /// servers do not say.
    pub(crate) async fn find(link: &Link) -> Option<Eviction> {
        for master in link.masters().await.ok()? {
            let Some(text) = link.info(&master, "memory").await else { continue };
            if let Some(policy) = unfit(&text) {
                return Some(Eviction { policy: policy.to_owned(), warned: Mutex::default() });
            }
        }
        None
    }

    /// Warns of it whatever the rules are.
    pub(crate) fn warn(&self) {
        self.warn_once(String::new(), "limits that are in use");
    }

    /// Warns of it if a policy relies on states that it evicts early: they end before most others,
    /// or are smaller or asked for less often.
    pub(crate) fn warn_of(&self, policy: &Policy) {
        let evicted = if policy.is_in_flight() {
            "slots in use"
        } else if policy.numbers().is_block() {
            "blocks"
        } else if policy.numbers().tracks_usage() {
            "limits before tracked usage"
        } else {
            return;
        };
        self.warn_once(policy.name().to_owned(), evicted);
    }

    /// Warns of what is evicted of a policy. The name is empty if it concerns all of them.
    fn warn_once(&self, name: String, evicted: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(format!("{evicted} of {name}")) {
            drop(warned);
            #[cfg(feature = "tracing")]
            tracing::warn!(
                code = %tollgate_core::LogCode::Eviction,
                policy = (!name.is_empty()).then_some(name),
                "redis evicts {evicted} when its memory is full: set maxmemory-policy to volatile-lru or \
                 noeviction instead of {}",
                self.policy
            );
        }
    }
}

/// The `maxmemory-policy` in an answer to `INFO memory`, unless it is fit: `volatile-lru` evicts
/// what was idle for the longest time, and without evictions charges fail.
fn unfit(info: &str) -> Option<&str> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let policy = field("maxmemory_policy")?;
    (field("maxmemory") != Some("0") && !matches!(policy, "volatile-lru" | "noeviction")).then_some(policy)
}
