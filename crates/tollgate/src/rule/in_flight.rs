//! Rules of requests in flight: how long a request waits for a slot, and how long it holds one.

use std::time::Duration;

use super::Rule;
use crate::errors::SetupError;

/// What a rule says about slots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SlotTimes {
    /// Zero: a request does not wait.
    wait: Duration,
    held: Option<Duration>,
}

impl Rule {
    /// Lets a request wait for a slot, for up to `time`, instead of refusing it. Only for a policy
    /// of [requests in flight](crate::Policy::in_flight).
    ///
    /// Requests that wait for the same slots form a queue in this limiter and its clones, in order
    /// of arrival. The first asks again when a request of this process ends, and every 200 ms,
    /// since one of another process may have ended. Between processes there is no order.
    ///
    /// A request waits only while it lacks nothing but slots. If it exceeds a rate too, or the
    /// store fails, it is refused at once. It never waits beyond its own
    /// [deadline](crate::RateLimitLayer::deadline_header).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::extract::header;
    /// use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new([
    ///     Policy::new("requests", Quota::per_minute(60)).by(header("x-api-key")),
    ///     Policy::in_flight("exports", 2).by(header("x-api-key")).wait_at_most(Duration::from_secs(5)),
    /// ]);
    /// ```
    pub fn wait_at_most(mut self, time: Duration) -> Rule {
        self.slot_times.wait = time;
        self
    }

    /// Ends the slot of a request that runs for longer than `time`, such as one with a slow reader
    /// or an endless stream. The request goes on, and [`Slot::lost`](crate::Slot::lost) tells its
    /// handler. Only for a policy of [requests in flight](crate::Policy::in_flight).
    ///
    /// Without this, a client that reads slowly holds its slot for as long as it likes.
    /// Outside of a tokio runtime with a timer, nothing ends the slot.
    pub fn held_at_most(mut self, time: Duration) -> Rule {
        self.slot_times.held = Some(time);
        self
    }

    /// How long a request waits for a slot.
    pub(crate) fn wait(&self) -> Duration {
        self.slot_times.wait
    }

    /// How long a request holds a slot at most.
    pub(crate) fn held(&self) -> Option<Duration> {
        self.slot_times.held
    }

    /// Checks that what it says about slots is for slots.
    pub(super) fn check_slots(&self) -> Result<(), SetupError> {
        let says_nothing = self.wait().is_zero() && self.held().is_none();
        if says_nothing || self.policy.is_in_flight() {
            return Ok(());
        }
        Err(SetupError::NotInFlight(self.policy.name().to_owned()))
    }
}
