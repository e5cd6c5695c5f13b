//! Finds the rules that may apply to the path of a request.

use std::collections::{BTreeSet, HashMap};

use smallvec::SmallVec;

use super::RuleNumber;
use crate::rule::Rule;

/// The numbers of rules, in their order.
pub(super) type RuleNumbers = SmallVec<[RuleNumber; 8]>;

/// The rules of a set by their paths. A request then costs as many steps as rules apply to it, and
/// not as many as there are rules.
#[derive(Clone, Debug)]
pub(super) struct PathIndex {
    /// Those for every path.
    everywhere: Box<[RuleNumber]>,
    whole: HashMap<Box<str>, Vec<RuleNumber>>,
    by_beginning: HashMap<Box<[u8]>, Vec<RuleNumber>>,
    /// The lengths of these beginnings.
    lengths: Box<[usize]>,
}

impl PathIndex {
    /// `None` if all rules are for every path.
    pub(super) fn new(rules: &[Rule]) -> Option<PathIndex> {
        let (mut everywhere, mut lengths) = (Vec::new(), BTreeSet::new());
        let (mut whole, mut by_beginning) = (HashMap::new(), HashMap::new());
        for (number, rule) in rules.iter().enumerate() {
            let number = RuleNumber(number);
            let Some(paths) = rule.paths() else {
                everywhere.push(number);
                continue;
            };
            for path in paths {
                let of_path: &mut Vec<RuleNumber> = match path.strip_suffix('*') {
                    Some(beginning) => {
                        lengths.insert(beginning.len());
                        by_beginning.entry(beginning.as_bytes().into()).or_default()
                    }
                    None => whole.entry(path.into()).or_default(),
                };
                of_path.push(number);
            }
        }
        let lengths = lengths.into_iter().collect();
        let has_paths = everywhere.len() < rules.len();
        has_paths.then(|| PathIndex { everywhere: everywhere.into(), whole, by_beginning, lengths })
    }

    /// The rules that may apply to a request with this path.
    pub(super) fn find(&self, path: &str) -> RuleNumbers {
        let beginnings = self.lengths.iter().map_while(|length| path.as_bytes().get(..*length));
        let by_beginning = beginnings.filter_map(|beginning| self.by_beginning.get(beginning));
        let mut found = RuleNumbers::from_slice(&self.everywhere);
        by_beginning.chain(self.whole.get(path)).for_each(|rules| found.extend_from_slice(rules));
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Policy, Quota};

    use super::*;
    use crate::extract::global;
    use crate::rule::PolicyExt;

    fn index(paths: &[&[&str]]) -> Option<PathIndex> {
        let rule = |paths: &&[&str]| {
            let rule = Policy::new("p", Quota::per_minute(5)).by(global());
            if paths.is_empty() { rule } else { rule.only_on(paths.iter().copied()) }
        };
        PathIndex::new(&paths.iter().map(rule).collect::<Vec<_>>())
    }

    fn found(index: &PathIndex, path: &str) -> Vec<usize> {
        index.find(path).into_iter().map(RuleNumber::index).collect()
    }

    #[test]
    fn rules_are_found_in_their_order_and_once() {
        let index = index(&[&["/api/*"], &[], &["/api/users", "/api/*"], &["/"], &["/*"], &["/api/u*"]]);
        let index = index.unwrap();
        assert_eq!(found(&index, "/api/users"), [0, 1, 2, 4, 5]);
        assert_eq!(found(&index, "/api/"), [0, 1, 2, 4]);
        assert_eq!(found(&index, "/api"), [1, 4]);
        assert_eq!(found(&index, "/"), [1, 3, 4]);
        assert_eq!(found(&index, ""), [1]);
        assert_eq!(found(&index, "*"), [1]);
    }

    #[test]
    fn without_paths_there_is_no_index() {
        assert!(index(&[&[], &[]]).is_none());
        assert!(index(&[]).is_none());
    }

    /// A request looks at the rules for its path only, however many there are.
    #[test]
    fn one_of_five_thousand_rules_is_looked_at() {
        let paths: Vec<String> = (0..5_000).map(|n| format!("/tenant/{n}/*")).collect();
        let rules: Vec<[&str; 1]> = paths.iter().map(|path| [path.as_str()]).collect();
        let index = index(&rules.iter().map(|paths| &paths[..]).collect::<Vec<_>>()).unwrap();
        for number in 0..5_000 {
            assert_eq!(found(&index, &format!("/tenant/{number}/users")), [number]);
        }
        assert_eq!(index.lengths.len(), 4, "a request makes as many steps");
    }
}
