//! The keys of one shard, each with a value: a hash table with linear probing in a single array.
//!
//! A key outside the processor's caches costs one access to memory. The sweep of idle keys and the
//! choice of a key to evict walk over the array. Its growth ends exactly at the cap: four places of
//! five are used then, which makes 60 bytes for each key.

// From top to bottom; imports run down this list only: sharded, this module, digest.
pub(crate) mod digest;
pub(crate) mod sharded;

use tollgate_core::Timestamp;

use digest::Digest;

/// How many places a full table inspects to find a key to evict.
const EVICTION_REACH: usize = 64;

/// Of so many candidates, the one closest to its reset is evicted.
const EVICTION_SAMPLE: usize = 8;

/// How long a key stays after its reset. Otherwise a busy caller with a large quota, whose bucket
/// is full again at each request, would be removed and added all the time.
const GRACE_US: u64 = 10_000_000;

/// Every so many accesses, one sweep frees idle keys in a shard without new keys.
const SWEEP_EVERY: u32 = 32;

/// How many places such a sweep inspects. Neighbours share cache lines, so rare large steps are
/// cheaper.
const SWEEP_STEP: u32 = 8;

/// How many places a sweep inspects for each key that was added.
const SWEEP_FOR_EACH_KEY: u32 = 4;

#[derive(Debug)]
pub(crate) struct Table<V> {
    /// At most four fifths are used. A key is at its home, or behind it without a free place
    /// between.
    places: Vec<Option<TableEntry<V>>>,
    len: usize,
    /// The cap on keys.
    cap: usize,
    /// Where the next sweep or search for a victim continues.
    hand: usize,
    /// Accesses until the next sweep.
    until_sweep: u32,
    /// Keys added since the last sweep.
    added: u32,
    /// The time of the latest decision.
    latest: Timestamp,
    /// Keys evicted before their reset.
    pub(crate) evicted: u64,
}

#[derive(Debug)]
pub(crate) struct TableEntry<V> {
    digest: Digest,
    expiry: Expiry,
    pub(crate) value: V,
}

/// When a value expires, and whether it is pinned until then, in one word to save memory. A
/// timestamp has 53 bits. What never expires by itself is pinned.
#[derive(Clone, Copy, Debug)]
struct Expiry(u64);

impl Expiry {
    fn new(at: Timestamp, pinned: bool) -> Expiry {
        let pinned = pinned || at == Timestamp::MAX;
        Expiry((at.as_micros() << 1) | u64::from(pinned))
    }

    fn is_over(self, now: Timestamp) -> bool {
        self.0 >> 1 <= now.as_micros()
    }

    fn pinned(self) -> bool {
        self.0 & 1 == 1
    }
}

impl<V> Table<V> {
    pub(crate) fn new(cap: usize) -> Table<V> {
        Table {
            places: Vec::new(),
            len: 0,
            cap,
            hand: 0,
            until_sweep: SWEEP_EVERY - 1,
            added: 0,
            latest: Timestamp::EPOCH,
            evicted: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The values of all keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.places.iter().flatten().map(|entry| &entry.value)
    }

    /// Returns the later of `now` and the latest time that the table has seen.
    #[inline]
    pub(crate) fn not_before(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The place of a key.
    #[inline]
    pub(crate) fn find(&self, digest: &Digest) -> Option<usize> {
        let mut at = self.home(digest);
        // Ends, because a fifth of the places is free, or there is none yet.
        while let Some(Some(entry)) = self.places.get(at) {
            if entry.digest == *digest {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    /// The entry at a place from [`Table::find`].
    #[inline]
    pub(crate) fn entry(&mut self, at: usize) -> &mut TableEntry<V> {
        self.places[at].as_mut().expect("a key stands where it was found")
    }

    /// Whether so many keys can be added without an eviction.
    pub(crate) fn has_room_for(&self, keys: usize) -> bool {
        self.len + keys <= self.cap
    }

    /// Grows if needed, so that so many keys can be added without moving others.
    pub(crate) fn reserve(&mut self, keys: usize) {
        if keys == 0 {
            return;
        }
        let wanted = places_for(self.len + keys);
        if wanted > self.places.len() {
            let doubled = (self.places.len() * 2).min(places_for(self.cap)).max(8);
            self.resize(wanted.max(doubled));
        }
    }

    /// Makes room for `needed` more keys, by evicting keys that are idle or not pinned, except
    /// those to `keep`. Returns `false` if there is none to evict. Keys move.
    pub(crate) fn make_room(
        &mut self,
        needed: usize,
        now: Timestamp,
        keep: impl Fn(&Digest) -> bool,
    ) -> bool {
        while !self.has_room_for(needed) {
            let Some(victim) = self.find_victim(now, &keep) else { return false };
            self.evicted += u64::from(!self.entry(victim).expiry.is_over(now));
            self.remove(victim);
        }
        true
    }

    /// Whether [`Table::make_room`] would succeed.
    pub(crate) fn could_make_room(
        &mut self,
        needed: usize,
        now: Timestamp,
        keep: impl Fn(&Digest) -> bool,
    ) -> bool {
        self.has_room_for(needed) || self.find_victim(now, keep).is_some()
    }

    /// Adds a new key. The caller has made room for it and reserved a place.
    pub(crate) fn insert(&mut self, digest: Digest, value: V, expires: Timestamp) {
        self.add(TableEntry { digest, expiry: Expiry::new(expires, false), value });
    }

    /// [`Table::insert`] for an entry that the caller has made.
    pub(crate) fn add(&mut self, entry: TableEntry<V>) {
        let mut at = self.home(&entry.digest);
        while self.places[at].is_some() {
            at = self.after(at);
        }
        self.places[at] = Some(entry);
        self.len += 1;
        self.added += 1;
        // The next access sweeps.
        self.until_sweep = 0;
    }

    /// Removes idle keys at the next few places, more of them than keys were added since. Keys
    /// move.
    #[inline]
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        match self.until_sweep.checked_sub(1) {
            Some(accesses) => self.until_sweep = accesses,
            None => self.sweep_next(now),
        }
    }

    #[cold]
    fn sweep_next(&mut self, now: Timestamp) {
        self.until_sweep = SWEEP_EVERY - 1;
        let long_ago = Timestamp::from_micros(now.as_micros().saturating_sub(GRACE_US));
        let steps = match std::mem::take(&mut self.added) {
            0 => SWEEP_STEP,
            keys => SWEEP_FOR_EACH_KEY * keys,
        };
        for _ in 0..steps {
            self.hand = if self.hand + 1 < self.places.len() { self.hand + 1 } else { 0 };
            // Another key may move to the place of a removed one.
            while let Some(Some(entry)) = self.places.get(self.hand)
                && entry.expiry.is_over(long_ago)
            {
                self.remove(self.hand);
            }
        }
        // Only far below the capacity, so that it does not grow again at once.
        if self.places.len() > 64 && self.len < self.places.len() / 8 {
            self.resize(self.places.len() / 4);
        }
    }

    /// Removes the key at this place, and moves keys behind it closer to their homes.
    pub(crate) fn remove(&mut self, at: usize) {
        let places = self.places.len();
        let mut free = at;
        let mut next = self.after(at);
        while let Some(entry) = &self.places[next] {
            // The distances of the key from its home and from the free place, with wrap-around.
            let from_home = (next + places - self.home(&entry.digest)) % places;
            let from_free = (next + places - free) % places;
            if from_home >= from_free {
                self.places[free] = self.places[next].take();
                free = next;
            }
            next = self.after(next);
        }
        self.places[free] = None;
        self.len -= 1;
    }

    fn find_victim(&mut self, now: Timestamp, keep: impl Fn(&Digest) -> bool) -> Option<usize> {
        let mut best: Option<(u64, usize)> = None;
        let mut seen = 0;
        for _ in 0..EVICTION_REACH.min(self.places.len()) {
            self.hand = self.after(self.hand);
            let Some(entry) = &self.places[self.hand] else { continue };
            if keep(&entry.digest) {
                continue;
            }
            if entry.expiry.is_over(now) {
                return Some(self.hand);
            }
            if entry.expiry.pinned() {
                continue;
            }
            best =
                Some(best.map_or((entry.expiry.0, self.hand), |best| best.min((entry.expiry.0, self.hand))));
            seen += 1;
            if seen == EVICTION_SAMPLE {
                break;
            }
        }
        best.map(|(_, at)| at)
    }

    fn resize(&mut self, places: usize) {
        let places = places.max(places_for(self.len));
        let mut entries = Vec::new();
        entries.reserve_exact(places);
        entries.resize_with(places, || None);
        self.hand = 0;
        for entry in std::mem::replace(&mut self.places, entries).into_iter().flatten() {
            let mut at = self.home(&entry.digest);
            while self.places[at].is_some() {
                at = self.after(at);
            }
            self.places[at] = Some(entry);
        }
    }

    /// The home of a key: its hash as a fraction of the table, so that the table may have any size.
    #[inline]
    fn home(&self, digest: &Digest) -> usize {
        let places = self.places.len() as u128;
        #[expect(clippy::cast_possible_truncation, reason = "a fraction of a usize")]
        let at = ((u128::from(digest.home()) * places) >> 64) as usize;
        at
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 < self.places.len() { at + 1 } else { 0 }
    }
}

/// The places for so many keys: five for every four keys, and one that is always free.
fn places_for(keys: usize) -> usize {
    keys.saturating_add(keys / 4).saturating_add(1)
}

impl<V> TableEntry<V> {
    /// An entry outside of a table, which is over until it is renewed.
    pub(crate) fn new(digest: Digest, value: V) -> TableEntry<V> {
        TableEntry { digest, expiry: Expiry::new(Timestamp::EPOCH, false), value }
    }

    /// Sets a new expiry. The entry stays pinned unless `unpin`.
    #[inline]
    pub(crate) fn renew(&mut self, expires: Timestamp, unpin: bool) {
        self.expiry = Expiry::new(expires, self.expiry.pinned() && !unpin);
    }

    /// Protects the entry from eviction until it expires.
    pub(crate) fn pin(&mut self) {
        self.expiry.0 |= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::digest::Secret;
    use super::*;
    use tollgate_core::algorithm::State;
    use tollgate_core::{Policy, Quota};

    fn digests(count: u64) -> Vec<Digest> {
        let secret = Secret::random();
        (0..count).map(|n| secret.digest(0, &n.to_be_bytes())).collect()
    }

    fn state() -> State {
        State::new(&Policy::new("p", Quota::per_second(1)))
    }

    const NOW: Timestamp = Timestamp::from_micros(1_000);
    const LATER: Timestamp = Timestamp::from_micros(2_000);

    #[test]
    fn a_slot_is_48_bytes() {
        assert_eq!(size_of::<Option<TableEntry<State>>>(), 48);
    }

    #[test]
    fn keys_are_found_after_growth_and_removal() {
        let all = digests(1_000);
        let mut table = Table::new(1_000);
        for (n, digest) in all.iter().enumerate() {
            table.reserve(1);
            table.insert(*digest, state(), LATER);
            assert_eq!(table.len(), n + 1);
        }
        for digest in all.iter().step_by(2) {
            let at = table.find(digest).unwrap();
            table.remove(at);
        }
        for (n, digest) in all.iter().enumerate() {
            assert_eq!(table.find(digest).is_some(), n % 2 == 1, "{n}");
        }
        assert_eq!(table.places.capacity(), 1_251, "growth ends exactly at the cap");
    }

    #[test]
    fn a_full_table_evicts_only_keys_that_are_not_pinned() {
        let all = digests(4);
        let mut table = Table::new(3);
        table.reserve(3);
        for digest in &all[..3] {
            table.insert(*digest, state(), LATER);
        }
        for digest in [&all[0], &all[2]] {
            let at = table.find(digest).unwrap();
            table.entry(at).pin();
        }
        assert!(!table.make_room(1, NOW, |digest| *digest == all[1]), "a key to keep is not evicted");
        assert!(table.make_room(1, NOW, |_| false));
        assert!(table.find(&all[1]).is_none());
        table.insert(all[3], state(), LATER);
        assert!(table.make_room(1, LATER, |_| false), "a pinned key is evicted after its expiry");
    }

    #[test]
    fn idle_keys_are_swept_and_their_memory_is_freed() {
        let mut table = Table::new(10_000);
        for digest in digests(5_000) {
            table.reserve(1);
            table.insert(digest, state(), LATER);
        }
        for _ in 0..SWEEP_EVERY * 10_000 {
            table.sweep(LATER);
        }
        assert_eq!(table.len(), 5_000, "keys just after their reset stay");
        let idle = Timestamp::from_micros(LATER.as_micros() + GRACE_US);
        for _ in 0..SWEEP_EVERY * 10_000 {
            table.sweep(idle);
        }
        assert_eq!(table.len(), 0);
        assert!(table.places.capacity() <= 64);
    }
}
