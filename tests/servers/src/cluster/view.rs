//! A node's view of its cluster.

use crate::{Error, Server};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) port: u16,
    pub(super) role: Role,
    /// First and last slot of each range.
    slots: Vec<(u16, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    Replica,
}

impl Node {
    pub(super) fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.iter().map(|(first, last)| usize::from(last - first) + 1).sum()
    }
}

/// The nodes that this node knows and does not consider failed.
pub(super) fn of(node: &Server) -> Result<Vec<Node>, Error> {
    let text = node.command(&["CLUSTER", "NODES"])?;
    let nodes = text
        .lines()
        .map(|line| parse(line).ok_or_else(|| Error(format!("cannot parse the line of a node: {line}"))));
    nodes.filter_map(Result::transpose).collect()
}

/// Parses a line of `CLUSTER NODES`: id, `ip:port@bus[,name]`, flags, master, ping, pong, epoch,
/// link, slots. `Some(None)` is a node that failed or is still unknown; `None` is an invalid line.
fn parse(line: &str) -> Option<Option<Node>> {
    let mut words = line.split(' ');
    let (address, _) = words.nth(1)?.split_once('@')?;
    let port = address.rsplit_once(':')?.1.parse().ok()?;
    let flags: Vec<_> = words.next()?.split(',').collect();
    if ["fail", "handshake", "noaddr"].iter().any(|flag| flags.contains(flag)) {
        return Some(None);
    }
    let role = if flags.contains(&"master") { Role::Master } else { Role::Replica };
    // Slots in brackets are being moved.
    let slots = words.skip(5).filter(|slots| !slots.starts_with('['));
    let slots = slots.map(|slots| {
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    Some(Some(Node { port, role, slots: slots.collect::<Option<_>>()? }))
}
