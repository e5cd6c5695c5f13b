//! A share that is too small refuses, or is one unit, and leases report what they hold.

use std::time::Duration;

use tollgate::store::Store;
use tollgate::{Key, Lease, Limiter, MemoryStore, Share, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, per_minute};

#[tokio::test]
async fn a_share_of_less_than_a_unit_refuses_or_is_one() {
    let store = Failing::new(MemoryStore::new(), Connection::Fails(Fault::Unreachable));
    let store = store.fall_back_to(MemoryStore::new(), Share::new(1, 20));
    let (limiter, ada) = (|| Limiter::new([per_minute("p", 10)]), Key::from("ada"));
    assert!(limiter().store(store.clone()).check(&ada, 1).await.is_err());
    let at_least_one = limiter().store(store.at_least_one());
    assert!(at_least_one.check(&ada, 1).await.is_ok());
    assert!(at_least_one.check(&ada, 1).await.is_err());
}

#[tokio::test]
async fn leases_that_were_not_used_hold_no_units() {
    let leased = MemoryStore::new().leased(Lease::default());
    let stats = leased.stats();
    assert_eq!((stats.held_units, stats.decisions_per_round_trip()), (0, None));
    assert!(leased.close(Duration::from_secs(2)).await.is_nothing());
}
