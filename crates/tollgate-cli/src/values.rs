//! Values on the command line: keys and times. Errors are one line.

use std::time::Duration;

use tollgate_core::{Key, TextError, TimeSpan};

pub(crate) const KEY_HELP: &str = "\
The key, as the names in the Redis show it

alice or =alice   text, such as the value of a header; after = with % escapes
@192.0.2.1        an address; an IPv6 address is that of its /64, unless a /N follows
#42               a whole number
*                 the key that all callers share
(=acme,#42)       several keys together
0|=alice          a key of the first of several alternatives";

pub(crate) fn key(text: &str) -> Result<Key, String> {
    text.parse().map_err(|error: TextError| format!("{error} (see --help)"))
}

/// Parses a time that is not zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().map(|TimeSpan(time)| time).filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected a time such as 10s, 500ms or 5m".to_owned())
}
