//! Keys as the page shows them.

use tollgate::Key;

/// Callers choose their keys, so they can be long. The page shows this many characters.
const LONGEST_KEY: usize = 60;

/// Returns a key as the page shows it.
pub(super) fn shown(key: &Key) -> String {
    shortened(key.to_readable())
}

/// Returns a key that a log names.
pub(super) fn shown_of_log(key: String) -> String {
    // A digest is no key.
    key.parse().map_or_else(|_| shortened(key), |key| shown(&key))
}

fn shortened(mut key: String) -> String {
    if let Some((end, _)) = key.char_indices().nth(LONGEST_KEY) {
        key.truncate(end);
        key.push('…');
    }
    key
}
