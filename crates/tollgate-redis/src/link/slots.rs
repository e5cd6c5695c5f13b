//! The slots of a Cluster and their owners, as `CLUSTER SLOTS` reports them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bb8_redis::redis::Value;

use super::node::ClusterNode;
use super::open::Address;

pub(super) const SLOTS: usize = 16_384;

/// A range of slots, and the master that owns them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    /// `None` if the node that reports the range does not know the address.
    pub(super) master: Option<Address>,
}

/// The known owner of each slot.
pub(super) struct Slots(Vec<Option<Arc<ClusterNode>>>);

impl Slots {
    pub(super) fn new(ranges: &[Range], nodes: &BTreeMap<Address, Arc<ClusterNode>>) -> Slots {
        let mut slots = vec![None; SLOTS];
        for range in ranges {
            let master = range.master.as_ref().and_then(|master| nodes.get(master));
            let owned = slots.get_mut(usize::from(range.first)..=usize::from(range.last));
            owned.into_iter().flatten().for_each(|owner| *owner = master.cloned());
        }
        Slots(slots)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        self.0.get(usize::from(slot))?.as_ref()
    }

    /// Each owner once. `None` if a slot has none.
    pub(super) fn owners(&self) -> Option<Vec<Arc<ClusterNode>>> {
        let mut owners: Vec<Arc<ClusterNode>> = Vec::new();
        for owner in &self.0 {
            let owner = owner.as_ref()?;
            if !owners.iter().any(|known| Arc::ptr_eq(known, owner)) {
                owners.push(Arc::clone(owner));
            }
        }
        Some(owners)
    }

    pub(super) fn set_owner(&mut self, slot: u16, node: Arc<ClusterNode>) {
        if let Some(owner) = self.0.get_mut(usize::from(slot)) {
            *owner = Some(node);
        }
    }
}

/// The ranges in an answer to `CLUSTER SLOTS`. `None` if the answer is malformed, or has no range.
pub(super) fn ranges(answer: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &range[..] else { return None };
        let [host, Value::Int(port), about @ ..] = &master[..] else { return None };
        let host = match host {
            Value::Nil => "",
            host => text(host)?,
        };
        // A node that should announce a host name but has none reports its address in addition.
        let host = if host == "?" { about.get(1).and_then(ip).unwrap_or(host) } else { host };
        let master = address(host, u16::try_from(*port).ok()?, asked);
        Some(Range { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, master })
    };
    let ranges: Vec<Range> = ranges.iter().map(range).collect::<Option<_>>()?;
    let fit = |range: &Range| range.first <= range.last && usize::from(range.last) < SLOTS;
    (!ranges.is_empty() && ranges.iter().all(fit)).then_some(ranges)
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => str::from_utf8(text).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// The IP address in a node's metadata, in RESP2 or RESP3.
fn ip(about: &Value) -> Option<&str> {
    match about {
        Value::Array(words) => {
            words.chunks_exact(2).find(|pair| text(&pair[0]) == Some("ip")).and_then(|pair| text(&pair[1]))
        }
        Value::Map(words) => {
            words.iter().find(|(name, _)| text(name) == Some("ip")).and_then(|(_, ip)| text(ip))
        }
        _ => None,
    }
}

/// The number of slots whose owner is known.
pub(super) fn covered(ranges: &[Range]) -> usize {
    let known = ranges.iter().filter(|range| range.master.is_some());
    known.map(|range| usize::from(range.last) - usize::from(range.first) + 1).sum()
}

/// The address in a redirection by a node. Without a host, the host is that of the node.
pub(super) fn redirected(to: &str, by: &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':')?;
    address(host, port.parse().ok()?, by)
}

/// The address of a node that another node reports, if that node knows it.
fn address(host: &str, port: u16, by: &Address) -> Option<Address> {
    match host {
        "?" => None,
        // The node means itself, so the host by which it was asked is right.
        "" | "0.0.0.0" | "::" => Some((by.0.clone(), port)),
        _ => Some((host.to_owned(), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, host: Value) -> Value {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), word("id"), Value::Array(vec![])]);
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            node(host, 7_001),
            node(word("replica"), 7_004),
        ])
    }

    #[test]
    fn a_master_without_a_host_is_at_the_address_that_was_asked() {
        let asked = ("asked".to_owned(), 7_000);
        let read = |host| ranges(&Value::Array(vec![range(0, 5, host)]), &asked).unwrap();
        let of = |host: &str| vec![Range { first: 0, last: 5, master: Some((host.to_owned(), 7_001)) }];
        assert_eq!(read(word("10.0.0.1")), of("10.0.0.1"));
        assert_eq!(read(word("::1")), of("::1"));
        for itself in [word(""), word("0.0.0.0"), word("::"), Value::Nil] {
            assert_eq!(read(itself), of("asked"));
        }
        assert_eq!(read(word("?")), vec![Range { first: 0, last: 5, master: None }]);
    }

    #[test]
    fn a_master_without_a_hostname_is_found_by_its_ip() {
        let asked = ("asked".to_owned(), 7_000);
        let read = |about: Value| {
            let master = Value::Array(vec![word("?"), Value::Int(7_001), word("id"), about]);
            let range = Value::Array(vec![Value::Int(0), Value::Int(5), master]);
            ranges(&Value::Array(vec![range]), &asked).unwrap().remove(0).master
        };
        let at = Some(("10.0.0.1".to_owned(), 7_001));
        assert_eq!(read(Value::Array(["hostname", "", "ip", "10.0.0.1"].map(word).to_vec())), at);
        assert_eq!(read(Value::Map(vec![(word("ip"), word("10.0.0.1"))])), at);
        for nothing in [Value::Nil, Value::Array(vec![word("ip")]), Value::Map(vec![]), Value::Array(vec![])]
        {
            assert_eq!(read(nothing), None);
        }
    }

    #[test]
    fn only_slots_with_a_known_master_are_covered() {
        let master = |known: bool| known.then(|| ("a".to_owned(), 1));
        let ranges = [(0, 0, true), (5, 10, true), (20, 30, false)].map(|(first, last, known)| Range {
            first,
            last,
            master: master(known),
        });
        assert_eq!(covered(&ranges), 7);
        assert_eq!(covered(&[Range { first: 0, last: 16_383, master: master(true) }]), SLOTS);
    }

    #[test]
    fn malformed_slot_maps_are_rejected() {
        let asked = ("asked".to_owned(), 7_000);
        for answer in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![Value::Int(1), Value::Int(2)])]),
            Value::Array(vec![range(0, 16_384, word("a"))]),
            Value::Array(vec![range(-1, 5, word("a"))]),
            Value::Array(vec![range(6, 5, word("a"))]),
            Value::Array(vec![range(0, 5, word("a")), range(6, 7, Value::Int(1))]),
        ] {
            assert_eq!(ranges(&answer, &asked), None, "{answer:?}");
        }
    }

    #[test]
    fn redirections_are_parsed_and_malformed_ones_rejected() {
        let by = ("by".to_owned(), 7_000);
        assert_eq!(redirected("10.0.0.1:7001", &by), Some(("10.0.0.1".to_owned(), 7_001)));
        assert_eq!(redirected("::1:7001", &by), Some(("::1".to_owned(), 7_001)));
        assert_eq!(redirected(":7001", &by), Some(("by".to_owned(), 7_001)));
        for junk in ["", "7001", "a:b", "a:70000", "?:7001"] {
            assert_eq!(redirected(junk, &by), None, "{junk}");
        }
    }
}
