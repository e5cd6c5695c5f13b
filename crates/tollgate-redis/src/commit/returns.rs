//! The refunds and resets that one call carries.

use bb8_redis::redis::{Cmd, Value};
use tollgate_core::{Clock, Stamp, Timestamp, Verdict};

use super::caller::{Caller, Deadline, Overdue, sooner};
use super::group::Load;
use super::target::Target;
use crate::error::Error;
use crate::link::Text;
use crate::wire::names::Name;
use crate::wire::numbers::Numbers;
use crate::wire::script::Parts;
use crate::wire::terms::Terms;

/// One key of a refund or a reset.
pub(crate) struct Return {
    pub(crate) name: Name,
    /// Without it, the key is reset.
    pub(crate) refund: Option<Refund>,
}

/// Units of a grant, which are the cost of the terms.
pub(crate) struct Refund {
    pub(crate) terms: Terms,
    pub(crate) stamp: Stamp,
}

/// Refunds and resets of many callers, on their way to refund.lua.
#[derive(Default)]
pub(super) struct Returns {
    requests: Vec<Request>,
    work: u32,
    parts: Parts,
    /// The earliest deadline of a caller.
    first_end: Option<Timestamp>,
}

struct Request {
    entries: Vec<Return>,
    caller: Caller,
}

impl Load for Returns {
    fn work(&self) -> u32 {
        self.work
    }

    fn len(&self) -> usize {
        self.requests.len()
    }

    fn callers(&self) -> usize {
        self.requests.len()
    }

    fn take_overdue(&mut self, overdue: &mut Overdue, why: &dyn Fn(Deadline) -> Error) -> bool {
        overdue.take(&mut self.first_end, self.requests.iter_mut().map(|request| &mut request.caller), why)
    }

    // Returns are sent even if their callers have left: the units are to come back.
    fn drop_overdue(&mut self) {}

    fn drop_abandoned(&mut self) {}

    fn command(&self, target: &Target, text: Text) -> Option<Cmd> {
        let keys = self.requests.iter().map(|request| request.entries.len()).sum();
        let script = target.scripts.refund(self.parts);
        (keys > 0).then(|| target.command(script, text, keys, |cmd| self.write(cmd, target)))
    }

    fn answer(self, answer: Result<Value, Error>) {
        for request in self.requests {
            let done = answer.as_ref().map(|_| Verdict::without_statuses(0));
            request.caller.tell(done.map_err(Error::clone));
        }
    }

    fn split(self) -> Vec<Returns> {
        let alone = |request: Request| {
            let mut load = Returns::default();
            load.push(request.entries, request.caller);
            load
        };
        self.requests.into_iter().map(alone).collect()
    }
}

impl Returns {
    pub(super) fn push(&mut self, entries: Vec<Return>, caller: Caller) {
        self.first_end = sooner(self.first_end, caller.until());
        for entry in &entries {
            self.work =
                self.work.saturating_add(entry.refund.as_ref().map_or(1, |refund| refund.terms.work()));
            if let Some(refund) = &entry.refund {
                self.parts.add(refund.terms.part);
            }
        }
        self.requests.push(Request { entries, caller });
    }

    /// The keys and arguments of refund.lua.
    fn write(&self, cmd: &mut Cmd, target: &Target) {
        let entries = || self.requests.iter().flat_map(|request| &request.entries);
        for entry in entries() {
            cmd.arg(&*entry.name);
        }
        if let Some(now) = target.clock.as_ref().map(Clock::now) {
            cmd.arg(now.as_micros());
        }
        let mut numbers = Numbers::new();
        for entry in entries() {
            match &entry.refund {
                Some(Refund { terms, stamp }) => {
                    numbers.push(terms.cost);
                    numbers.push(stamp.micros());
                    numbers.push(stamp.fraction().into());
                    terms.write_refund(&mut numbers);
                }
                None => Terms::write_reset(&mut numbers),
            }
        }
        cmd.arg(numbers.as_bytes());
    }
}
