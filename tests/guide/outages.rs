//! A share that is too small is an error at construction, and leases report what they hold.

use tollgate::{Lease, MemoryStore, Quota, RateLimitLayer, SetupError, Share, StoreExt};
use tollgate_tests::{Connection, Failing, Fault};

#[test]
fn a_share_of_less_than_a_unit_is_an_error_at_construction() {
    let store = Failing::new(MemoryStore::new(), Connection::Fails(Fault::Unreachable));
    let store = store.fall_back_to(MemoryStore::new(), Share::new(1, 20));
    let error = RateLimitLayer::per_ip(Quota::per_minute(10)).try_store(store).err();
    assert!(matches!(error, Some(SetupError::Unsupported(policy, _)) if policy.name() == "default"));
}

#[tokio::test]
async fn leases_that_were_not_used_hold_no_units() {
    let leased = MemoryStore::new().leased(Lease::default());
    let stats = leased.stats();
    assert_eq!((stats.held_units, stats.decisions_per_round_trip()), (0, None));
    leased.give_back().await;
}
