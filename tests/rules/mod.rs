//! Rules that change while they are enforced: in a file, and in a store that a fleet shares.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod edits;
mod journal;
mod limits;
#[cfg(unix)]
mod walk;
