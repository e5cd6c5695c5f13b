//! Which node of a Cluster has which slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use bb8_redis::redis::Value;

use super::node::Node;

const SLOTS: usize = 16_384;

/// Host and port.
pub(super) type Address = (String, u16);

/// Slots from one to another, and the master that has them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    /// None, if the node that tells does not know where it is.
    pub(super) master: Option<Address>,
}

/// The owners of all slots, as far as they are known.
pub(super) struct Slots(Vec<Option<Arc<Node>>>);

impl Slots {
    pub(super) fn new(ranges: &[Range], nodes: &BTreeMap<Address, Arc<Node>>) -> Slots {
        let mut slots = vec![None; SLOTS];
        for range in ranges {
            let master = range.master.as_ref().and_then(|master| nodes.get(master));
            let owned = slots.get_mut(usize::from(range.first)..=usize::from(range.last));
            owned.into_iter().flatten().for_each(|owner| *owner = master.cloned());
        }
        Slots(slots)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        self.0.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn set_owner(&mut self, slot: u16, node: Arc<Node>) {
        if let Some(owner) = self.0.get_mut(usize::from(slot)) {
            *owner = Some(node);
        }
    }
}

/// What a node answered to `CLUSTER SLOTS`: of each range its first and last slot, its master, and its replicas; `None` if that
/// is not what it is, or if nobody has any slot.
pub(super) fn ranges(answer: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &range[..] else { return None };
        let [host, Value::Int(port), ..] = &master[..] else { return None };
        let host = match host {
            Value::BulkString(host) => str::from_utf8(host).ok()?,
            Value::SimpleString(host) => host,
            Value::Nil => "",
            _ => return None,
        };
        let master = address(host, u16::try_from(*port).ok()?, asked);
        Some(Range { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, master })
    };
    let ranges: Vec<Range> = ranges.iter().map(range).collect::<Option<_>>()?;
    let fit = |range: &Range| range.first <= range.last && usize::from(range.last) < SLOTS;
    (!ranges.is_empty() && ranges.iter().all(fit)).then_some(ranges)
}

/// The address that a redirection names; without a host, it is that of the node that names it.
pub(super) fn redirected(to: &str, by: &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':')?;
    address(host, port.parse().ok()?, by)
}

/// Where a node is that another tells of, if that knows.
fn address(host: &str, port: u16, by: &Address) -> Option<Address> {
    match host {
        "?" => None,
        // It is itself there, as far as it knows, under whatever name it was asked.
        "" | "0.0.0.0" | "::" => Some((by.0.clone(), port)),
        _ => Some((host.to_owned(), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, host: Value) -> Value {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            node(host, 7_001),
            node(text("replica"), 7_004),
        ])
    }

    #[test]
    fn masters_by_their_names_or_where_they_were_asked() {
        let asked = ("asked".to_owned(), 7_000);
        let read = |host| ranges(&Value::Array(vec![range(0, 5, host)]), &asked).unwrap();
        let of = |host: &str| vec![Range { first: 0, last: 5, master: Some((host.to_owned(), 7_001)) }];
        assert_eq!(read(text("10.0.0.1")), of("10.0.0.1"));
        assert_eq!(read(text("::1")), of("::1"));
        for itself in [text(""), text("0.0.0.0"), text("::"), Value::Nil] {
            assert_eq!(read(itself), of("asked"));
        }
        assert_eq!(read(text("?")), vec![Range { first: 0, last: 5, master: None }]);
    }

    #[test]
    fn what_is_no_map_of_slots_is_none() {
        let asked = ("asked".to_owned(), 7_000);
        for answer in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![Value::Int(1), Value::Int(2)])]),
            Value::Array(vec![range(0, 16_384, text("a"))]),
            Value::Array(vec![range(-1, 5, text("a"))]),
            Value::Array(vec![range(6, 5, text("a"))]),
            Value::Array(vec![range(0, 5, text("a")), range(6, 7, Value::Int(1))]),
        ] {
            assert_eq!(ranges(&answer, &asked), None, "{answer:?}");
        }
    }

    #[test]
    fn redirections() {
        let by = ("by".to_owned(), 7_000);
        assert_eq!(redirected("10.0.0.1:7001", &by), Some(("10.0.0.1".to_owned(), 7_001)));
        assert_eq!(redirected("::1:7001", &by), Some(("::1".to_owned(), 7_001)));
        assert_eq!(redirected(":7001", &by), Some(("by".to_owned(), 7_001)));
        for junk in ["", "7001", "a:b", "a:70000", "?:7001"] {
            assert_eq!(redirected(junk, &by), None, "{junk}");
        }
    }
}
