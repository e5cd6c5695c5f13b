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
    /// Two layers charged one request for the same policy and key.
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

/// What the log has seen, and what to do.
const TEXTS: [(&str, &str); 12] = [
    (
        "a request has a field that proxies write, and a rule counts by peer address",
        "count by `ClientIp` with your proxies; without a proxy a client wrote it, and nothing is to be done",
    ),
    (
        "the proxies that `ClientIp` trusts cover every address",
        "trust the networks of your proxies: now each caller chooses its address",
    ),
    (
        "one request was charged twice for one policy and key",
        "add the layer once, or give its policies other names",
    ),
    (
        "1,000 limiters in a row decided one request each and were dropped",
        "make the layer or limiter once, and clone it: a new one has forgotten what was used",
    ),
    (
        "a connection changed its protocol, and no handler had taken its `Slot`: it is not counted",
        "take `Slot` in the handler, and move it into the task of the connection",
    ),
    (
        "the clock of a Redis server stepped by more than 10 s",
        "let NTP slew the clocks; limits refilled early, or refill late by as much",
    ),
    (
        "Redis evicts limits in use when its memory is full",
        "set `maxmemory-policy` to `volatile-lru` or `noeviction`",
    ),
    (
        "requests have no peer address to be limited by",
        "with axum, serve `into_make_service_with_connect_info` and enable the feature `axum`; else insert `PeerAddr`",
    ),
    (
        "a request through trusted hops has no client address",
        "let the server insert its peers' addresses, unless it listens on a Unix socket",
    ),
    (
        "a request was refused because its extensions lack a type",
        "put the layer that inserts the type outside of the limit",
    ),
    (
        "the memory store is full of keys that were denied: new keys share one quota",
        "add a rule by address, or raise `max_keys`",
    ),
    (
        "the memory store is full of keys that were denied, and a block was dropped",
        "add a rule by address, or raise `max_keys`",
    ),
];

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
        TEXTS[self.index()].0
    }

    /// What to do.
    pub fn fix(self) -> &'static str {
        TEXTS[self.index()].1
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
