//! What slots of long keys hold, counted at the allocator.

use allocation_counter::measure;
use tollgate::{Key, Limiter, Policy};

const SLOTS: u64 = 200;

/// About as much as the head of a request may have.
const KEY: usize = 390_000;

/// The slot needs its key to be renewed and released, and the permit needs it for refunds.
#[test]
fn a_slot_and_its_permit_hold_one_copy_of_a_long_key() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let limiter = Limiter::new([Policy::in_flight("exports", 1)]);
    let mut permits = Vec::new();
    let heap = measure(|| {
        permits.extend((0..SLOTS).map(|n| {
            let key = Key::from(format!("{n} {}", "x".repeat(KEY)));
            runtime.block_on(limiter.check(&key, 1)).unwrap()
        }));
    });
    let of_each = heap.bytes_current / i64::try_from(SLOTS).unwrap();
    println!("a slot of a key of {KEY} bytes holds {of_each} bytes");
    assert!(of_each < i64::try_from(KEY).unwrap() * 11 / 10, "{of_each} bytes");
    drop(permits);
}
