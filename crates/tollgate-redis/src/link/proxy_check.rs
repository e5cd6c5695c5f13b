//! Refuses proxies that spread keys over several servers without being a Cluster.
//!
//! Such a proxy routes a call with many keys by the first of them. The state of a key would be kept
//! on several servers, and each would admit the whole limit. One that divides keys into hash slots
//! routes a call rightly if its keys are of one hash slot.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, cmd};

use crate::error::is_configuration;

/// With two servers, all of so many keys are on one of them in one case of 32,768.
const KEYS: usize = 16;

/// Texts of one hash slot. They are of one with any text before them too, since CRC16 is linear.
const OF_ONE_HASH_SLOT: [&str; KEYS] = [
    "000000", "7a8399", "6d597c", "fda3ea", "df0531", "6ef72a", "d29fa1", "0030ec", "d0ae04", "20fdc0",
    "f32c76", "bf030f", "52d0df", "a92377", "7d8adf", "1ad118",
];

/// Tries out the first connection of a store.
pub(super) struct ShardingCheck {
    prefix: String,
    /// Whether the keys of a call are of one hash slot.
    in_one_hash_slot: bool,
    has_passed: AtomicBool,
}

impl ShardingCheck {
    pub(super) fn new(prefix: &str, in_one_hash_slot: bool) -> ShardingCheck {
        ShardingCheck { prefix: prefix.to_owned(), in_one_hash_slot, has_passed: AtomicBool::new(false) }
    }

    /// Names of keys that no other call uses.
    fn keys(&self) -> Vec<String> {
        let random = RandomState::new();
        let tag = |n| match self.in_one_hash_slot {
            true => format!("{:016x}{}", random.hash_one(0), OF_ONE_HASH_SLOT[n]),
            // Not numbered: hashes of names that are nearly the same may lie near each other.
            false => format!("{:016x}", random.hash_one(n)),
        };
        (0..KEYS).map(|n| format!("{}:sharding-check:{{{}}}", self.prefix, tag(n))).collect()
    }

    /// Writes several keys by one call, and reads each by its own.
    ///
    /// # Errors
    /// If a key is not where the call wrote it; if the server wants all keys of a call in one hash
    /// slot; if the server or the connection fails.
    pub(super) async fn run(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        if self.has_passed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let keys = self.keys();
        let mut write = cmd("EVAL");
        write
            .arg("for _, key in ipairs(KEYS) do redis.call('PSETEX', key, 10000, 1) end")
            .arg(KEYS)
            .arg(&keys);
        let mut read = Pipeline::new();
        for key in &keys {
            read.cmd("MGET").arg(key);
        }
        let delete = "return redis.call('DEL', unpack(KEYS))";
        read.cmd("EVAL").arg(delete).arg(KEYS).arg(&keys).ignore();
        let written: Result<(), RedisError> = write.query_async(connection).await;
        let found: Result<Vec<Vec<Option<String>>>, RedisError> = match written {
            Ok(()) => read.query_async(connection).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => {
                let found = || found.iter().map(|values| values.first().is_some_and(Option::is_some));
                if found().next() == Some(true) && found().any(|is_there| !is_there) {
                    return Err(refused(
                        "a proxy spreads the keys of this URL over several servers, so that limits would multiply",
                    ));
                }
                self.has_passed.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) => Err(refused(
                "this server wants all keys of a call in one hash slot: its URL must begin with redis-cluster://",
            )),
            // A mistake that `connect` explains better: a missing permission, a Sentinel.
            Err(error) if is_configuration(&error) => Ok(()),
            // Until the check has passed, the connection is not used: a server behind a proxy may
            // be down.
            Err(error) => Err(error),
        }
    }
}

fn refused(why: &'static str) -> RedisError {
    (ErrorKind::InvalidClientConfig, why).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::wire::names::hash_slot_of;

    #[test]
    fn names_have_a_hash_slot_in_common_if_a_call_must_have_one() {
        for (in_one_hash_slot, hash_slots) in [(true, 1..=1), (false, 2..=KEYS)] {
            let names = ShardingCheck::new("p", in_one_hash_slot).keys();
            let tags = names.iter().map(|name| name.split(['{', '}']).nth(1).unwrap());
            let of_tags: BTreeSet<u16> = tags.clone().map(|tag| hash_slot_of(tag.as_bytes())).collect();
            assert!(hash_slots.contains(&of_tags.len()), "{names:?}");
            assert_eq!(tags.collect::<BTreeSet<_>>().len(), KEYS);
        }
    }
}
