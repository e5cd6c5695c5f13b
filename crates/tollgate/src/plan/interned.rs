//! Texts that every response carries.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderValue;

/// The most texts that are interned, and the longest in bytes.
const LIMIT: usize = 1_024;

/// Leaks a text, the same text once, so that its copies need no reference count.
///
/// Under load, all threads changing one count for every response costs more than the rest of a
/// denial. A program that makes rules without end only leaks the first texts.
pub(crate) fn interned(text: String) -> Bytes {
    static TEXTS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_str()) {
        return Bytes::from_static(known.as_bytes());
    }
    if texts.len() >= LIMIT || text.len() > LIMIT {
        return text.into();
    }
    let text: &'static str = text.leak();
    texts.insert(text);
    Bytes::from_static(text.as_bytes())
}

/// Text of this crate as the value of a field. Names of policies are printable ASCII, and so is all
/// other text.
pub(crate) fn printable(text: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(text).expect("printable ASCII is a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_interned_once_and_the_number_of_texts_is_bounded() {
        let pointer = |text: &str| interned(text.to_owned()).as_ptr();
        let first = pointer("a text");
        for n in 0..2 * LIMIT {
            assert_eq!(interned(n.to_string()), n.to_string());
        }
        assert_eq!(first, pointer("a text"));
        let late = interned("too late".to_owned());
        assert_ne!(late.as_ptr(), interned("too late".to_owned()).as_ptr());
        assert_eq!(late, "too late");
    }
}
