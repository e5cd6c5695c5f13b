//! The memory of a request that waits for a guarded store.

use tollgate::MemoryStore;
use tollgate::failure::{Answering, ByShare, Guarded};
use tollgate::store::Store;
use tollgate_redis::RedisStore;

/// A boxed store allocates as much for each request that waits.
#[test]
fn the_future_of_a_guarded_store_takes_at_most_700_bytes() {
    type Redis = RedisStore;
    type GuardedRedis = Guarded<RedisStore>;
    type WithFallback = Answering<GuardedRedis, ByShare<MemoryStore>>;
    let redis = size_of::<<Redis as Store>::Acquire>();
    let guarded = size_of::<<GuardedRedis as Store>::Acquire>();
    let with_fallback = size_of::<<WithFallback as Store>::Acquire>();
    println!("{redis} bytes, guarded {guarded}, with a fallback {with_fallback}");
    assert!(with_fallback <= 700, "{with_fallback}");
}
