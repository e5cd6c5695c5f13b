//! What one process stores about one minute, as lines of text that `redis-cli` can show.
//!
//! ```text
//! one-in   DECISIONS
//! floor    ALLOWED  DENIED
//! policy   ALLOWED  DENIED  NAME
//! allowed  COUNT    ERROR   POLICY  KEY
//! denied   COUNT    ERROR   POLICY  KEY
//! ```
//!
//! Fields are separated by tabs. POLICY is the number of a policy line, from 0. A line of another
//! form is skipped, so that later versions can add some. A policy line keeps its number.

use std::fmt::Write;

use super::key_list::{KeyList, Listed};
use super::settings::{MOST_KEYS, MOST_ONE_IN};

/// What was counted in a minute. Keys are texts once they have the names of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page<K = String> {
    /// The most decisions that one counted decision stands for.
    pub(super) one_in: u32,
    pub(super) policies: Vec<PolicyCount>,
    pub(super) allowed: KeyList<K>,
    pub(super) denied: KeyList<K>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyCount {
    /// Empty if its line was skipped.
    pub(super) name: String,
    pub(super) allowed: u64,
    pub(super) denied: u64,
}

/// Larger numbers are foreign: a process counts less in a minute.
const MOST: u64 = u32::MAX as u64;

/// Later lines are foreign: a recorder writes at most four for each of [`MOST_KEYS`], two of them
/// for rules in shadow, and few more.
const MOST_LINES: usize = 5 * MOST_KEYS;

impl Page {
    pub(super) fn new() -> Page {
        Page { one_in: 1, policies: Vec::new(), allowed: KeyList::default(), denied: KeyList::default() }
    }

    pub(super) fn write(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let (allowed, denied) = (self.allowed.floor, self.denied.floor);
        let _ = writeln!(text, "one-in\t{}\nfloor\t{allowed}\t{denied}", self.one_in);
        for PolicyCount { name, allowed, denied } in &self.policies {
            let _ = writeln!(text, "policy\t{allowed}\t{denied}\t{name}");
        }
        for (outcome, list) in [("allowed", &self.allowed), ("denied", &self.denied)] {
            for Listed { policy, key, count, error } in &list.keys {
                let _ = writeln!(text, "{outcome}\t{count}\t{error}\t{policy}\t{key}");
            }
        }
        text
    }

    pub(super) fn read(text: &str) -> Page {
        let mut page = Page::new();
        for line in text.lines().take(MOST_LINES) {
            let _ = page.read_line(line);
        }
        page
    }

    /// `None` if the line has another form.
    fn read_line(&mut self, line: &str) -> Option<()> {
        let mut fields = line.split('\t');
        let kind = fields.next()?;
        let mut number = || fields.next()?.parse::<u64>().ok().map(|number| number.min(MOST));
        match kind {
            "one-in" => self.one_in = u32::try_from(number()?).ok()?.min(MOST_ONE_IN),
            "floor" => (self.allowed.floor, self.denied.floor) = (number()?, number()?),
            "policy" => {
                let counts = number().zip(number());
                let policy = counts.zip(fields.next()).map(|((allowed, denied), name)| PolicyCount {
                    name: name.to_owned(),
                    allowed,
                    denied,
                });
                // Of a line of another form, so that the numbers of later ones stay.
                self.policies.push(policy.unwrap_or_default());
            }
            "allowed" | "denied" => {
                let (count, error, policy) = (number()?, number()?, usize::try_from(number()?).ok()?);
                let list = if kind == "allowed" { &mut self.allowed } else { &mut self.denied };
                list.keys.push(Listed { policy, key: fields.next()?.to_owned(), count, error });
            }
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_foreign_page_are_bounded() {
        let huge = u64::MAX;
        let page = Page::read(&format!(
            "one-in\t4000000000\npolicy\t{huge}\t1\tapi\nallowed\t{huge}\t{huge}\t0\tada"
        ));
        assert_eq!((page.one_in, page.policies[0].allowed), (MOST_ONE_IN, MOST));
        assert_eq!((page.allowed.keys[0].count, page.allowed.keys[0].error), (MOST, MOST));
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let listed = |key: &str, count| Listed { policy: 0, key: key.to_owned(), count, error: 1 };
        let page = Page {
            one_in: 16,
            policies: vec![PolicyCount { name: "per user".to_owned(), allowed: 7, denied: 2 }],
            allowed: KeyList { keys: vec![listed("=ada", 5), listed("@192.0.2.1", 2)], floor: 1 },
            denied: KeyList { keys: vec![listed("=eve", MOST)], floor: 0 },
        };
        assert_eq!(Page::read(&page.write()), page);
    }

    #[test]
    fn foreign_lines_are_skipped() {
        let text = "later\t1\npolicy\t1\tx\tapi\nallowed\t3\npolicy\t1\t2\tapi\n\nfloor";
        let api = PolicyCount { name: "api".to_owned(), allowed: 1, denied: 2 };
        let policies = vec![PolicyCount::default(), api];
        assert_eq!(Page::read(text), Page { policies, ..Page::new() });
    }
}
