//! Queues of callers in one process, in order of arrival: one queue for each key of a policy.
//!
//! A queue hands out *turns*. A caller asks with a turn in each queue of its keys, and waits in one
//! of them. The queues do not know what it asks for. A caller that leaves is skipped, and a queue
//! ends with its last caller.
//!
//! A caller notes when it looks at its queues again. If it is late by more than a second, its task
//! is not polled any more, and it is passed by.

// From top to bottom; imports run down this list only: this module, queues, queue_table, wake_list.
mod queue_table;
mod queues;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;
mod wake_list;

// Those of the queues, which their schedules replace.
use std::sync;

use crate::time::timer_now;

pub(super) use queue_table::LOOK_AGAIN;
pub(super) use queues::{WaitQueues, Waiter};
