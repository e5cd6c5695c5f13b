//! Where calls go, and what they are written with.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::Cmd;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tollgate_core::{Clock, LogCode, Timestamp};

use super::server_clock::ServerClocks;
use crate::link::{Link, Text};
use crate::wire::names::{BoundedKey, KeyNames, Name};
use crate::wire::script::{Script, Scripts};

pub(crate) struct CallContext {
    pub(crate) link: Arc<Link>,
    pub(crate) names: KeyNames,
    pub(crate) scripts: Arc<Scripts>,
    /// How long the usage of a key is kept after its last use, in milliseconds.
    pub(crate) usage_life_ms: u64,
    pub(crate) clocks: ServerClocks,
    /// The clock of a test. Without one, Redis's clock decides.
    pub(crate) clock: Option<Clock>,
    /// Measures how long callers wait: always the system's clock.
    pub(crate) waits: Clock,
    /// Permits for questions about usage: they wait for each other, so that they hold up no check.
    pub(crate) questions: Arc<Semaphore>,
    /// How long a question waits for its permit.
    pub(crate) longest_turn: Duration,
    /// How long a caller in another runtime waits that has no limit of its own.
    pub(crate) longest_wait_elsewhere: Duration,
    /// Runs every call to its end, so that a caller that leaves leaves none half done.
    pub(crate) runtime: Handle,
}

impl CallContext {
    /// The same server, where rules in shadow have keys of their own.
    pub(super) fn in_shadow(&self) -> CallContext {
        CallContext {
            link: Arc::clone(&self.link),
            names: self.names.in_shadow(),
            scripts: Arc::clone(&self.scripts),
            usage_life_ms: self.usage_life_ms,
            clocks: ServerClocks::default(),
            clock: self.clock.clone(),
            waits: self.waits.clone(),
            questions: Arc::clone(&self.questions),
            longest_turn: self.longest_turn,
            longest_wait_elsewhere: self.longest_wait_elsewhere,
            runtime: self.runtime.clone(),
        }
    }

    /// The hash slot of a key; 0 without a Cluster, where all keys can be decided together.
    pub(crate) fn hash_slot_of_key(&self, key: &BoundedKey) -> u16 {
        if self.link.has_hash_slots() { self.names.hash_slot(key) } else { 0 }
    }

    /// The hash slot of a name; 0 without a Cluster.
    pub(crate) fn hash_slot_of(&self, name: &Name) -> u16 {
        if self.link.has_hash_slots() { name.hash_slot() } else { 0 }
    }

    /// About the time that the server's clock shows.
    pub(super) fn server_time(&self, hash_slot: u16) -> Timestamp {
        self.clock.as_ref().map_or_else(|| self.clocks.now(hash_slot, self.waits.now()), Clock::now)
    }

    /// Notes the time in a reply of a hash slot's server. Logs the first step of its clock.
    pub(super) fn answered(&self, hash_slot: u16, now: Timestamp) {
        let stepped = self.clocks.answered(hash_slot, now, self.waits.now());
        if stepped && self.clock.is_none() && LogCode::ClockStepped.is_first() {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                code = %LogCode::ClockStepped,
                "the clock of a Redis server stepped by more than 10 s: limits refilled early, or refill late by as much"
            );
        }
    }

    /// A call of a script on this number of keys. `write` adds the keys and the arguments.
    pub(crate) fn command(
        &self,
        script: &Script,
        text: Text,
        keys: usize,
        write: impl FnOnce(&mut Cmd),
    ) -> Cmd {
        // Large enough for most calls, so that it rarely grows.
        let mut cmd = Cmd::with_capacity(keys + 5, 64 * keys + 256);
        match text {
            Text::Hash => cmd.arg("EVALSHA").arg(script.hash.as_str()),
            Text::Source => cmd.arg("EVAL").arg(script.text.as_str()),
        };
        cmd.arg(keys);
        write(&mut cmd);
        cmd
    }
}
