//! Texts that are made once and sent with every response.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// `text`, for as long as the program runs; the same text is kept once.
///
/// A shared text that counts its holders would be counted up and down for every response, by all threads in one place:
/// under load that costs more than all else that a denial does. What is kept is bounded by the rules that a program has
/// ever had.
pub(crate) fn interned(text: String) -> &'static str {
    static TEXTS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_str()) {
        return known;
    }
    let kept: &'static str = text.leak();
    texts.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_kept_once() {
        let first = interned("a text".to_owned());
        assert!(std::ptr::eq(first, interned("a text".to_owned())));
        assert_eq!(interned("another".to_owned()), "another");
    }
}
