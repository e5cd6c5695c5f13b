//! Why a text is not a value.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// The reason why a text is not a [`Quota`](crate::Quota), a [`TimeSpan`](crate::TimeSpan), a
/// [`Key`](crate::Key) or a [`LogCode`](crate::LogCode). Its message is one line with the text and
/// what is allowed.
///
/// ```
/// use tollgate_core::Quota;
///
/// let error = "100/fortnight".parse::<Quota>().unwrap_err();
/// assert_eq!(error.text(), "fortnight");
/// assert_eq!(error.to_string(), "\"fortnight\" is not a time such as 10s, 500ms, 5min, h or d");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    text: Box<str>,
    is_not: Cow<'static, str>,
}

impl TextError {
    /// The message is `text`, quoted, followed by "is not" and `is_not`.
    pub(crate) fn new(text: &str, is_not: impl Into<Cow<'static, str>>) -> TextError {
        TextError { text: text.into(), is_not: is_not.into() }
    }

    /// The same where something else is allowed too.
    ///
    /// ```
    /// use tollgate_core::TimeSpan;
    ///
    /// let error = "soon".parse::<TimeSpan>().unwrap_err().or("never");
    /// assert_eq!(error.to_string(), "\"soon\" is not a time such as 10s, 500ms, 5min, h or d, or never");
    /// ```
    #[must_use]
    pub fn or(self, other: &str) -> TextError {
        TextError { is_not: format!("{}, or {other}", self.is_not).into(), ..self }
    }

    /// The wrong text, which may be a part of the whole.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.is_not)
    }
}

impl Error for TextError {}
