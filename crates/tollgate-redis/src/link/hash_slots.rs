//! The slots of a Cluster and their owners, as `CLUSTER SLOTS` reports them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bb8_redis::redis::Value;

use super::node::ClusterNode;
use super::open::Address;

pub(super) const HASH_SLOTS: usize = 16_384;
const LAST_HASH_SLOT: u16 = 16_383;

/// A range of hash slots, and the master that owns them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    /// `None` if the node that reports the range does not know the address.
    pub(super) master: Option<Address>,
}

impl Range {
    /// All hash slots, of one master.
    pub(super) fn whole(master: &Address) -> Range {
        Range { first: 0, last: LAST_HASH_SLOT, master: Some(master.clone()) }
    }
}

/// The known owner of each hash slot.
pub(super) struct HashSlots(Vec<Option<Arc<ClusterNode>>>);

impl HashSlots {
    pub(super) fn new(ranges: &[Range], nodes: &BTreeMap<Address, Arc<ClusterNode>>) -> HashSlots {
        let mut hash_slots = vec![None; HASH_SLOTS];
        for range in ranges {
            let master = range.master.as_ref().and_then(|master| nodes.get(master));
            let owned = hash_slots.get_mut(usize::from(range.first)..=usize::from(range.last));
            owned.into_iter().flatten().for_each(|owner| *owner = master.cloned());
        }
        HashSlots(hash_slots)
    }

    pub(super) fn owner(&self, hash_slot: u16) -> Option<&Arc<ClusterNode>> {
        self.0.get(usize::from(hash_slot))?.as_ref()
    }

    /// Each owner once. `None` if a hash slot has none.
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

    pub(super) fn set_owner(&mut self, hash_slot: u16, node: Arc<ClusterNode>) {
        if let Some(owner) = self.0.get_mut(usize::from(hash_slot)) {
            *owner = Some(node);
        }
    }
}

/// The ranges in an answer to `CLUSTER SLOTS`. `None` if the answer is malformed, or has no range.
pub(super) fn ranges(answer: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), master, ..] = &range[..] else { return None };
        let master = announced(master, asked)?;
        Some(Range { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, master })
    };
    let ranges: Vec<Range> = ranges.iter().map(range).collect::<Option<_>>()?;
    let fit = |range: &Range| range.first <= range.last && usize::from(range.last) < HASH_SLOTS;
    (!ranges.is_empty() && ranges.iter().all(fit)).then_some(ranges)
}

/// The address that a node in an answer to `CLUSTER SLOTS` announces. `None` if the answer is
/// malformed, `Some(None)` if the address is unknown.
fn announced(node: &Value, asked: &Address) -> Option<Option<Address>> {
    let Value::Array(node) = node else { return None };
    let [host, Value::Int(port), about @ ..] = &node[..] else { return None };
    let host = match host {
        Value::Nil => "",
        host => text(host)?,
    };
    // A node that should announce a host name but has none reports its address in addition.
    let host = if host == "?" { about.get(1).and_then(ip).unwrap_or(host) } else { host };
    Some(address(host, u16::try_from(*port).ok()?, asked))
}

/// The address that the node with this id announces, in an answer to `CLUSTER SLOTS`.
pub(super) fn announced_by(id: &str, answer: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(ranges) = answer else { return None };
    let nodes = ranges.iter().flat_map(|range| match range {
        Value::Array(range) => range.get(2..).unwrap_or_default(),
        _ => &[],
    });
    let mut of_id =
        nodes.filter(|node| matches!(node, Value::Array(node) if node.get(2).and_then(text) == Some(id)));
    announced(of_id.next()?, asked)?
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

/// The number of hash slots whose owner is known.
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
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

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
        assert_eq!(covered(&[Range { first: 0, last: 16_383, master: master(true) }]), HASH_SLOTS);
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

    /// An answer of any shape without numbers, so it has no range.
    fn garbage() -> impl Strategy<Value = Value> {
        let texts = ["", "?", "::", "10.0.0.1", "hostname", "ip", "5"];
        let leaf = prop_oneof![
            select(texts.to_vec()).prop_map(word),
            vec(any::<u8>(), 0..3).prop_map(Value::BulkString),
            Just(Value::Nil),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| vec(inner, 0..5).prop_map(Value::Array))
    }

    /// A range with numbers at and beyond their bounds, and whether it is one.
    fn doubtful_range() -> impl Strategy<Value = (Value, bool)> {
        let hash_slots = || prop_oneof![-2_i64..2, 16_382_i64..16_386, any::<i64>()];
        (hash_slots(), hash_slots(), prop_oneof![-1_i64..2, 65_534_i64..65_538]).prop_map(
            |(first, last, port)| {
                let master = Value::Array(vec![word("10.0.0.1"), Value::Int(port)]);
                let is_range = 0 <= first && first <= last && last < 16_384 && (0..65_536).contains(&port);
                (Value::Array(vec![Value::Int(first), Value::Int(last), master]), is_range)
            },
        )
    }

    /// A master as a node reports it, with its address, if it is known.
    fn reported_master() -> impl Strategy<Value = (Value, Option<Address>)> {
        let (host, about) =
            ("10\\.0\\.0\\.[1-9]", |host: &str| [word("hostname"), word(""), word("ip"), word(host)]);
        (host, any::<u16>(), 0..5).prop_map(move |(host, port, form)| {
            let (reported, about, known) = match form {
                0 => (Value::Nil, Value::Array(vec![]), Some("asked")),
                1 => (word("::"), Value::Nil, Some("asked")),
                2 => (word("?"), Value::Array(about(&host).to_vec()), Some(&*host)),
                3 => (word("?"), Value::Map(vec![(word("hostname"), word("a"))]), None),
                _ => (Value::SimpleString(host.clone()), Value::Nil, Some(&*host)),
            };
            let known = known.map(|host| (host.to_owned(), port));
            (Value::Array(vec![reported, Value::Int(port.into()), word("id"), about]), known)
        })
    }

    proptest! {
        // `PROPTEST_CASES` sets more.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn reported_ranges_are_read_and_one_malformed_range_refuses_all(
            reported in vec((0_u16..16_384, 0_u16..16_384, reported_master(), vec(garbage(), 0..3)), 1..5),
            (other, is_range) in prop_oneof![garbage().prop_map(|value| (value, false)), doubtful_range()],
            place in any::<prop::sample::Index>(),
        ) {
            let asked = ("asked".to_owned(), 7_000);
            let (mut answer, mut expected) = (Vec::new(), Vec::new());
            for (a, b, (master, known), replicas) in reported {
                let (first, last) = (a.min(b), a.max(b));
                let range = [Value::Int(first.into()), Value::Int(last.into()), master];
                answer.push(Value::Array(range.into_iter().chain(replicas).collect()));
                expected.push(Range { first, last, master: known });
            }
            let hash_slots = expected.iter().filter(|range| range.master.is_some());
            prop_assert_eq!(covered(&expected), hash_slots.flat_map(|range| range.first..=range.last).count());
            let read = ranges(&Value::Array(answer.clone()), &asked);
            prop_assert_eq!(read, Some(expected));

            answer.insert(place.index(answer.len() + 1), other);
            prop_assert_eq!(ranges(&Value::Array(answer), &asked).is_some(), is_range);
        }
    }
}
