//! Texts that are made once and sent with every response.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use bytes::Bytes;

/// How many texts are kept for ever, and how long a text may be.
const MOST: usize = 1_024;

/// `text`, to be cloned for every response.
///
/// A shared text that counts its holders is counted up and down for every response, by all threads in one place: under
/// load that costs more than all else that a denial does. So it is kept for as long as the program runs, the same text
/// once; but of a program that makes up rules without end only the first some, and the rest count their holders.
pub(crate) fn interned(text: String) -> Bytes {
    static TEXTS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_str()) {
        return Bytes::from_static(known.as_bytes());
    }
    if texts.len() >= MOST || text.len() > MOST {
        return Bytes::from(text);
    }
    let kept: &'static str = text.leak();
    texts.insert(kept);
    Bytes::from_static(kept.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_kept_once_and_not_without_end() {
        let first = interned("a text".to_owned());
        for n in 0..2 * MOST {
            assert_eq!(interned(n.to_string()), n.to_string().as_bytes());
        }
        assert!(std::ptr::eq(first.as_ptr(), interned("a text".to_owned()).as_ptr()));
        let late = "too late to be kept".to_owned();
        assert!(!std::ptr::eq(interned(late.clone()).as_ptr(), interned(late).as_ptr()));
    }
}
