//! Keys as the page shows them.

use tollgate::Key;

/// Callers choose their keys, so they can be long. The page shows this many characters.
const LONGEST_KEY: usize = 60;

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
