//! The permanent codes of lines in the log.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::TextError;

/// The permanent code of a line in the log, in its field `code`: it names a mistake in how a
/// service is set up, or something that happened to what it relies on. The command `tollgate code
/// CODE` prints what it means and what to do.
///
/// ```
/// use tollgate_core::LogCode;
///
/// let code: LogCode = "TOLLGATE_E02".parse()?;
/// assert_eq!(code, LogCode::TrustsAll);
/// println!("{code}: {}. {}.", code.meaning(), code.fix());
/// # Ok::<(), tollgate_core::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogCode {
    /// A request came through a proxy, and a rule counts by the proxy's address.
    ProxyField = 1,
    /// A list of trusted proxies covers every address.
    TrustsAll,
    /// Two layers counted one request for one policy and key.
    ChargedTwice,
    /// A layer or limiter is made for each request.
    MadePerRequest,
    /// A connection changed its protocol, and its slots were released.
    SlotNotTaken,
    /// A clock of a Redis server stepped.
    ClockStepped,
    /// A Redis server evicts limits in use.
    Eviction,
    /// Requests have no peer address.
    NoPeerAddress,
    /// A request through trusted hops has no client address.
    NoClientAddress,
    /// A request lacks what an outer layer inserts.
    NoExtension,
    /// A store in memory is full of keys that were denied.
    MemoryFull,
    /// A block found no room in a full store in memory.
    BlockDropped,
}

impl LogCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [LogCode; 12] = [
        LogCode::ProxyField,
        LogCode::TrustsAll,
        LogCode::ChargedTwice,
        LogCode::MadePerRequest,
        LogCode::SlotNotTaken,
        LogCode::ClockStepped,
        LogCode::Eviction,
        LogCode::NoPeerAddress,
        LogCode::NoClientAddress,
        LogCode::NoExtension,
        LogCode::MemoryFull,
        LogCode::BlockDropped,
    ];

    /// What the log has seen.
    pub fn meaning(self) -> &'static str {
        self.texts().0
    }

    /// What to do.
    pub fn fix(self) -> &'static str {
        self.texts().1
    }

    /// Returns `true` once in a process: for code that logs each of its findings once.
    pub fn is_first(self) -> bool {
        static SEEN: [AtomicBool; 12] = [const { AtomicBool::new(false) }; 12];
        let seen = &SEEN[self.index()];
        !seen.load(Ordering::Relaxed) && !seen.swap(true, Ordering::Relaxed)
    }

    fn index(self) -> usize {
        self as usize - 1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            LogCode::ProxyField => (
                "a request has a field that proxies write, and a rule counts by peer address",
                "count by `ClientIp` with your proxies; without a proxy a client wrote it, and nothing is to be done",
            ),
            LogCode::TrustsAll => (
                "the proxies that `ClientIp` trusts cover every address",
                "trust the networks of your proxies: now each caller chooses its address",
            ),
            LogCode::ChargedTwice => (
                "two layers counted one request for one policy and key",
                "add the layer once, or give its policies other names",
            ),
            LogCode::MadePerRequest => (
                "1,000 limiters in a row decided one request each and were dropped",
                "make the layer or limiter once, and clone it: a new one has forgotten what was used",
            ),
            LogCode::SlotNotTaken => (
                "a connection changed its protocol, and no handler had taken its `Slot`: it is not counted",
                "take `Slot` in the handler, and move it into the task of the connection",
            ),
            LogCode::ClockStepped => (
                "the clock of a Redis server stepped by more than 10 s",
                "let NTP slew the clocks; limits refilled early, or refill late by as much",
            ),
            LogCode::Eviction => (
                "Redis evicts limits in use when its memory is full",
                "set `maxmemory-policy` to `volatile-lru` or `noeviction`",
            ),
            LogCode::NoPeerAddress => (
                "requests have no peer address to be limited by",
                "with axum, serve `into_make_service_with_connect_info` and enable the feature `axum`; else insert `PeerAddr`",
            ),
            LogCode::NoClientAddress => (
                "a request through trusted hops has no client address",
                "let the server insert its peers' addresses, unless it listens on a Unix socket",
            ),
            LogCode::NoExtension => (
                "a request was refused because its extensions lack a type",
                "put the layer that inserts the type outside of the limit",
            ),
            LogCode::MemoryFull => (
                "the memory store is full of keys that were denied: new keys share one quota",
                "add a rule by address, or raise `max_keys`",
            ),
            LogCode::BlockDropped => (
                "the memory store is full of keys that were denied, and a block was dropped",
                "add a rule by address, or raise `max_keys`",
            ),
        }
    }
}

impl fmt::Display for LogCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TOLLGATE_E{:02}", *self as usize)
    }
}

impl FromStr for LogCode {
    type Err = TextError;

    /// Reads a code as the log writes it.
    fn from_str(text: &str) -> Result<LogCode, TextError> {
        let found = LogCode::ALL.into_iter().find(|code| code.to_string() == text);
        found.ok_or_else(|| TextError::new(text, "a code such as TOLLGATE_E01"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_read_as_it_is_written() {
        for (at, code) in LogCode::ALL.into_iter().enumerate() {
            assert_eq!(code.index(), at);
            assert_eq!(code.to_string().parse(), Ok(code));
        }
        for text in ["", "E01", "TOLLGATE_E1", "TOLLGATE_E13", "tollgate_e01"] {
            assert!(text.parse::<LogCode>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_code_is_first_once() {
        assert!(LogCode::TrustsAll.is_first());
        assert!(!LogCode::TrustsAll.is_first());
        assert!(LogCode::ProxyField.is_first());
    }
}
