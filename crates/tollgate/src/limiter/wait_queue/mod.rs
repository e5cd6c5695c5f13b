//! Queues of callers in one process, in order of arrival: one queue for each set of keys.
//!
//! A queue hands out *turns*: the right to ask for what the callers wait for. It does not know what
//! that is. A caller that leaves is skipped, and a queue ends with its last caller.

// From top to bottom; imports run down this list only: this module, queues, wake_list.
mod queues;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;
mod wake_list;

// The queues', which their schedules replace by loom's.
use std::sync;

pub(super) use queues::{WaitQueues, Waiter};
