//! The keys that were seen last. A store does not list its keys.

use std::collections::VecDeque;

use tollgate::Key;

/// The keys that are remembered.
const MOST_KEYS: usize = 50;
/// Callers choose their keys, so they can be long. The page shows this many characters.
const LONGEST_KEY: usize = 60;

/// The latest first.
#[derive(Clone, Debug, Default)]
pub(super) struct LatestKeys(VecDeque<Key>);

impl LatestKeys {
    /// Moves a key to the front. The oldest makes room for a new one.
    pub(super) fn note(&mut self, key: Key) {
        match self.0.iter().position(|known| *known == key) {
            Some(known) => _ = self.0.remove(known),
            None => self.0.truncate(MOST_KEYS - 1),
        }
        self.0.push_front(key);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }
}

/// Returns a key as the page shows it.
pub(super) fn shown(key: &Key) -> String {
    let mut text = String::new();
    // To a `String`, this does not fail.
    let _ = key.write_text(&mut text);
    shortened(text)
}

pub(super) fn shortened(mut key: String) -> String {
    if let Some((end, _)) = key.char_indices().nth(LONGEST_KEY) {
        key.truncate(end);
        key.push('…');
    }
    key
}
