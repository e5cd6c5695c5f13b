//! One shard's keys: a hash table with chains in a dense array.
//!
//! Dense, because three things walk over it: the sweep that reclaims idle keys a few at a time, the choice of a key to
//! evict, and growth in steps that end exactly at the cap. A key costs its slot (48 bytes), a link (4), and its part
//! of the heads (4 to 8).

use tollgate_core::Timestamp;
use tollgate_core::algorithm::State;

use super::digest::Digest;

/// No slot: the end of a chain.
const NIL: u32 = u32::MAX;

/// How many keys a full table looks at to find one that may go.
const EVICTION_REACH: usize = 64;

/// Of how many that may go, the one with the least left to forget is taken.
const EVICTION_SAMPLE: usize = 8;

/// For how long a key that nothing is remembered of may stay, lest a busy caller with a generous quota, whose bucket
/// is full again at each request, be dropped and added all the time.
const GRACE_US: u64 = 10_000_000;

/// A sweep step at every so many accesses, so that a shard without new keys gives its idle ones back too.
const SWEEP_EVERY: u32 = 8;

#[derive(Debug)]
pub(super) struct Table {
    /// The first slot of each chain; a power of two of them.
    heads: Vec<u32>,
    /// The next slot of the chain, for each slot.
    links: Vec<u32>,
    slots: Vec<Slot>,
    /// The most slots.
    cap: usize,
    /// Where the sweep goes on.
    hand: usize,
    accesses: u32,
    /// Keys added since the last sweep.
    added: u32,
}

#[derive(Debug)]
pub(super) struct Slot {
    digest: Digest,
    expiry: Expiry,
    pub(super) state: State,
}

/// When a state means nothing more, and whether it has denied a request: one word, since every byte counts a million
/// times. A timestamp has 53 bits.
#[derive(Clone, Copy, Debug)]
struct Expiry(u64);

impl Expiry {
    fn new(at: Timestamp, denied: bool) -> Expiry {
        Expiry(at.as_micros() << 1 | u64::from(denied))
    }

    fn is_over(self, now: Timestamp) -> bool {
        self.0 >> 1 <= now.as_micros()
    }

    fn denied(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Table {
    pub(super) fn new(cap: usize) -> Table {
        // Slots are numbered in u32, less the one that means none.
        let cap = cap.min(NIL as usize);
        Table { heads: Vec::new(), links: Vec::new(), slots: Vec::new(), cap, hand: 0, accesses: 0, added: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(super) fn find(&self, digest: &Digest) -> Option<usize> {
        if self.heads.is_empty() {
            return None;
        }
        let mut at = self.heads[self.bucket(digest)];
        while at != NIL {
            if self.slots[at as usize].digest == *digest {
                return Some(at as usize);
            }
            at = self.links[at as usize];
        }
        None
    }

    #[inline]
    pub(super) fn slot(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }

    /// Adds a key that is not there. The caller has made room.
    pub(super) fn insert(&mut self, digest: Digest, state: State, expires: Timestamp) {
        if self.slots.len() == self.slots.capacity() {
            self.resize((self.slots.len() * 2).max(8));
        }
        let at = u32::try_from(self.slots.len()).unwrap_or(NIL);
        let bucket = self.bucket(&digest);
        self.slots.push(Slot { digest, expiry: Expiry::new(expires, false), state });
        self.links.push(self.heads[bucket]);
        self.heads[bucket] = at;
        self.added += 1;
    }

    /// Whether that many keys can be added without evicting any.
    pub(super) fn has_room_for(&self, keys: usize) -> bool {
        self.slots.len() + keys <= self.cap
    }

    /// Makes room for `needed` keys more, if it must by evicting keys that are idle or have denied nothing; keys for
    /// which `keep` holds stay. False if there is none to evict.
    ///
    /// A key that was denied stays until its reset: otherwise inventing keys would win its caller a fresh quota.
    pub(super) fn make_room(
        &mut self,
        needed: usize,
        now: Timestamp,
        keep: impl Fn(&Digest) -> bool,
    ) -> bool {
        while !self.has_room_for(needed) {
            let Some(victim) = self.find_victim(now, &keep) else { return false };
            self.remove(victim);
        }
        true
    }

    /// Drops idle keys among the next few slots: two for each key that was added since, so that idle keys go faster
    /// than new ones come, and two now and then besides. Slots move.
    #[inline]
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.accesses = self.accesses.wrapping_add(1);
        if self.added > 0 || self.accesses.is_multiple_of(SWEEP_EVERY) {
            self.sweep_a_few(now);
        }
    }

    fn sweep_a_few(&mut self, now: Timestamp) {
        let long_ago = Timestamp::from_micros(now.as_micros().saturating_sub(GRACE_US));
        for _ in 0..2 * std::mem::take(&mut self.added).max(1) {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            match self.slots.get(self.hand) {
                Some(slot) if slot.expiry.is_over(long_ago) => self.remove(self.hand),
                Some(_) => self.hand += 1,
                None => return,
            }
        }
        // Far below capacity, so that growing again right after is unlikely.
        if self.slots.len() < self.slots.capacity() / 4 && self.slots.capacity() > 64 {
            self.resize(self.slots.len() * 2);
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        let bucket = self.bucket(&self.slots[at].digest);
        let after = self.links[at];
        self.relink(bucket, at, after);
        self.slots.swap_remove(at);
        self.links.swap_remove(at);
        // The last slot now stands at `at`: whatever pointed to it has to follow.
        let last = self.slots.len();
        if at < last {
            let bucket = self.bucket(&self.slots[at].digest);
            self.relink(bucket, last, u32::try_from(at).unwrap_or(NIL));
        }
    }

    fn find_victim(&mut self, now: Timestamp, keep: impl Fn(&Digest) -> bool) -> Option<usize> {
        let mut best: Option<(u64, usize)> = None;
        let mut seen = 0;
        for _ in 0..EVICTION_REACH.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &self.slots[self.hand];
            if keep(&slot.digest) {
                continue;
            }
            if slot.expiry.is_over(now) {
                return Some(self.hand);
            }
            if slot.expiry.denied() {
                continue;
            }
            best = Some(best.map_or((slot.expiry.0, self.hand), |best| best.min((slot.expiry.0, self.hand))));
            seen += 1;
            if seen == EVICTION_SAMPLE {
                break;
            }
        }
        best.map(|(_, at)| at)
    }

    /// Makes the link of the chain that leads to `from`, which is in it, lead to `to`.
    fn relink(&mut self, bucket: usize, from: usize, to: u32) {
        let mut at = self.heads[bucket] as usize;
        if at == from {
            self.heads[bucket] = to;
            return;
        }
        while self.links[at] as usize != from {
            at = self.links[at] as usize;
        }
        self.links[at] = to;
    }

    fn resize(&mut self, capacity: usize) {
        let capacity = capacity.clamp(self.slots.len() + 1, self.cap.max(self.slots.len() + 1));
        for_exactly(&mut self.slots, capacity);
        for_exactly(&mut self.links, capacity);
        self.heads.clear();
        self.heads.shrink_to(0);
        self.heads.resize(capacity.next_power_of_two(), NIL);
        for at in 0..self.slots.len() {
            let bucket = self.bucket(&self.slots[at].digest);
            self.links[at] = std::mem::replace(&mut self.heads[bucket], u32::try_from(at).unwrap_or(NIL));
        }
    }

    #[inline]
    fn bucket(&self, digest: &Digest) -> usize {
        digest.bucket() & (self.heads.len() - 1)
    }
}

impl Slot {
    /// Notes when the state, which was charged, will mean nothing more.
    #[inline]
    pub(super) fn expires(&mut self, at: Timestamp) {
        self.expiry = Expiry::new(at, self.expiry.denied());
    }

    /// Notes that a request was denied: the slot must outlive that denial.
    pub(super) fn was_denied(&mut self) {
        self.expiry.0 |= 1;
    }
}

fn for_exactly<T>(vec: &mut Vec<T>, capacity: usize) {
    vec.shrink_to(capacity);
    vec.reserve_exact(capacity.saturating_sub(vec.len()));
}

#[cfg(test)]
mod tests {
    use super::super::digest::Secret;
    use super::*;
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
        assert_eq!(size_of::<Slot>(), 48);
    }

    #[test]
    fn finds_what_it_holds_and_nothing_else_through_growth_and_removal() {
        let all = digests(1_000);
        let mut table = Table::new(1_000);
        for (n, digest) in all.iter().enumerate() {
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
        assert_eq!(table.slots.capacity(), 1_000, "growth ends exactly at the cap");
    }

    #[test]
    fn a_full_table_evicts_what_was_not_denied() {
        let all = digests(4);
        let mut table = Table::new(3);
        for digest in &all[..3] {
            table.insert(*digest, state(), LATER);
        }
        for digest in [&all[0], &all[2]] {
            let at = table.find(digest).unwrap();
            table.slot(at).was_denied();
        }
        assert!(!table.make_room(1, NOW, |digest| *digest == all[1]), "what is kept may not go");
        assert!(table.make_room(1, NOW, |_| false));
        assert!(table.find(&all[1]).is_none());
        table.insert(all[3], state(), LATER);
        assert!(table.make_room(1, LATER, |_| false), "after its reset a denied key may go");
    }

    #[test]
    fn idle_keys_are_swept_and_their_memory_returned() {
        let mut table = Table::new(10_000);
        for digest in digests(5_000) {
            table.insert(digest, state(), LATER);
        }
        for _ in 0..SWEEP_EVERY * 5_000 {
            table.sweep(LATER);
        }
        assert_eq!(table.len(), 5_000, "those just over may come back");
        let idle = Timestamp::from_micros(LATER.as_micros() + GRACE_US);
        for _ in 0..SWEEP_EVERY * 5_000 {
            table.sweep(idle);
        }
        assert_eq!(table.len(), 0);
        assert!(table.slots.capacity() <= 64 && table.heads.len() <= 64);
    }
}
