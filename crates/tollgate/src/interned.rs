//! Texts that are made once and sent with every response.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderValue;

/// How many texts are kept for ever, and how long a text may be.
const MOST: usize = 1_024;

/// A text of printable ASCII, to be handed to every response.
///
/// A shared text that counts its holders is counted up and down for every response, by all threads in one place: under
/// load that costs more than all else that a denial does. So it is kept for as long as the program runs, the same text
/// once; but of a program that makes up rules without end only the first some, and the rest count their holders.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    Kept(&'static HeaderValue),
    Counted(Arc<HeaderValue>),
}

impl Text {
    pub(crate) fn interned(text: String) -> Text {
        static TEXTS: LazyLock<Mutex<HashMap<&'static str, &'static HeaderValue>>> =
            LazyLock::new(Mutex::default);
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = texts.get(text.as_str()) {
            return Text::Kept(known);
        }
        if texts.len() >= MOST || text.len() > MOST {
            return Text::counted(text);
        }
        let text: &'static str = text.leak();
        let value = Box::leak(Box::new(printable(Bytes::from_static(text.as_bytes()))));
        texts.insert(text, value);
        Text::Kept(value)
    }

    pub(crate) fn counted(text: String) -> Text {
        Text::Counted(Arc::new(printable(text.into())))
    }

    #[inline]
    pub(crate) fn value(&self) -> &HeaderValue {
        match self {
            Text::Kept(value) => value,
            Text::Counted(value) => value,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.value().to_str().unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Text::Kept(value) => Bytes::from_static(value.as_bytes()),
            Text::Counted(value) => Bytes::copy_from_slice(value.as_bytes()),
        }
    }
}

/// Text of ours as a field's value.
pub(crate) fn printable(text: Bytes) -> HeaderValue {
    // Names are printable ASCII by construction, and the rest is ours.
    HeaderValue::from_maybe_shared(text).expect("printable ASCII is a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_kept_once_and_not_without_end() {
        let interned = |text: &str| Text::interned(text.to_owned());
        let first = interned("a text");
        for n in 0..2 * MOST {
            assert_eq!(interned(&n.to_string()).value(), &n.to_string());
        }
        assert!(std::ptr::eq(first.value(), interned("a text").value()));
        assert_eq!(first.bytes().as_ptr(), first.bytes().as_ptr());
        let late = interned("too late to be kept");
        assert!(!std::ptr::eq(late.value(), interned("too late to be kept").value()));
        assert_eq!(late.bytes(), "too late to be kept");
    }
}
