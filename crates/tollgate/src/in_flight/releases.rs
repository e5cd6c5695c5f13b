//! Releases of slots that are on their way to a store.
//!
//! A client that holds the only slot may send its next request before the store has heard that the
//! last one is over. Such a request is asked again after the release. Callers that wait for a slot
//! hear of each release of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::sync::{Mutex, MutexGuard};
use crate::table::digest::Digest;

#[derive(Clone, Default)]
pub(super) struct Releases(Arc<Mutex<BTreeMap<Digest, OfKey>>>);

pub(super) struct OfKey {
    /// How many releases were announced since the entry was made.
    sent: u64,
    /// How many of them were answered.
    done: watch::Sender<u64>,
}

impl OfKey {
    fn is_idle(&self) -> bool {
        self.sent == *self.done.borrow() && self.done.receiver_count() == 0
    }
}

impl Releases {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, OfKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A release will be sent. It counts as answered when the result is dropped.
    pub(super) fn announce(&self, digest: Digest) -> OnItsWay {
        let mut keys = self.lock();
        let of_key = keys.entry(digest).or_insert_with(OfKey::new);
        of_key.sent += 1;
        OnItsWay { releases: self.clone(), digest }
    }

    /// The releases of these keys that are on their way now, if there are any.
    pub(super) fn on_their_way(&self, digests: impl Iterator<Item = Digest>) -> Option<Releasing> {
        let keys = self.lock();
        if keys.is_empty() {
            return None;
        }
        self.releasing(digests.filter_map(|digest| Some((digest, keys.get(&digest)?))))
    }

    /// How many releases are on their way now.
    pub(super) fn unanswered(&self) -> u64 {
        self.lock().values().map(|of_key| of_key.sent - *of_key.done.borrow()).sum()
    }

    /// All releases that are on their way now, if there are any.
    pub(super) fn all_on_their_way(&self) -> Option<Releasing> {
        self.releasing(self.lock().iter().map(|(digest, of_key)| (*digest, of_key)))
    }

    fn releasing<'a>(&self, keys: impl Iterator<Item = (Digest, &'a OfKey)>) -> Option<Releasing> {
        let under_way = keys.filter(|(_, of_key)| of_key.sent > *of_key.done.borrow());
        let listen = |(digest, of_key): (Digest, &OfKey)| (of_key.sent, self.listener(digest, of_key));
        let each: SmallVec<[_; 1]> = under_way.map(listen).collect();
        (!each.is_empty()).then_some(Releasing(each))
    }

    /// Hears of the next release of a key.
    pub(super) fn listen(&self, digest: Digest) -> Listener {
        let mut keys = self.lock();
        let of_key = keys.entry(digest).or_insert_with(OfKey::new);
        self.listener(digest, of_key)
    }

    fn listener(&self, digest: Digest, of_key: &OfKey) -> Listener {
        Listener { releases: self.clone(), digest, done: Some(of_key.done.subscribe()) }
    }

    /// Changes the entry of a key, and forgets it once it is idle.
    fn change(&self, digest: Digest, change: impl FnOnce(&OfKey)) {
        let mut keys = self.lock();
        if let Some(of_key) = keys.get(&digest) {
            change(of_key);
            if of_key.is_idle() {
                keys.remove(&digest);
            }
        }
    }
}

impl OfKey {
    fn new() -> OfKey {
        OfKey { sent: 0, done: watch::Sender::new(0) }
    }
}

/// A release that was announced and not answered yet.
pub(super) struct OnItsWay {
    releases: Releases,
    digest: Digest,
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.releases.change(self.digest, |of_key| of_key.done.send_modify(|done| *done += 1));
    }
}

/// Hears of releases of a key.
pub(crate) struct Listener {
    releases: Releases,
    digest: Digest,
    /// `None` while it is dropped.
    done: Option<watch::Receiver<u64>>,
}

impl Listener {
    /// Waits for the next release, but only until then.
    pub(crate) async fn released(&mut self, until: Instant) {
        if let Some(done) = &mut self.done {
            // The sender lives as long as this listens.
            let _ = timeout_at(until, done.changed()).await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.done = None;
        self.releases.change(self.digest, |_| ());
    }
}

/// Releases that are on their way, and how many have to be answered.
pub(crate) struct Releasing(SmallVec<[(u64, Listener); 1]>);

impl Releasing {
    /// Waits until all of them were answered.
    pub(crate) async fn answered(mut self) {
        for (sent, listener) in &mut self.0 {
            if let Some(done) = &mut listener.done {
                // The sender lives as long as this listens.
                let _ = done.wait_for(|done| *done >= *sent).await;
            }
        }
    }
}
