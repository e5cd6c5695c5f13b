//! Why a request does not pass. The room `answer` makes its response.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use tollgate_core::{Policy, Status, Wait};

use crate::decision::Report;
use crate::errors::{Reason, seconds_up};

/// Why a request was refused, which policies refused it, and when it would pass.
///
/// Every refusal of a layer carries its `Denial` in the response's extensions, for outer layers.
#[derive(Clone, Debug)]
pub struct Denial {
    reason: Reason,
    report: Report,
}

/// When to try again for a slot.
const SLOT_RETRY: Duration = Duration::from_secs(1);

impl Denial {
    pub(crate) fn new(reason: Reason, report: Report) -> Denial {
        Denial { reason, report }
    }

    /// The denial of a set that was not granted.
    pub(crate) fn of(report: Report) -> Denial {
        let is_blocked = report.iter().any(is_refusing_block);
        let reason = match report.verdict().wait() {
            _ if is_blocked => Reason::Blocked,
            Wait::Never => Reason::NeverPossible,
            Wait::For(_) => Reason::QuotaExceeded,
            Wait::None => Reason::Unavailable,
        };
        Denial { reason, report }
    }

    /// Returns why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the state of all rules that applied, including those that had room.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the names of the policies that refused.
    pub fn violated(&self) -> impl Iterator<Item = &str> {
        self.violated_at().filter_map(|at| self.report.policies().nth(at)).map(Policy::name)
    }

    /// The places in the report of the policies that refused.
    pub(crate) fn violated_at(&self) -> impl Iterator<Item = usize> {
        let by_status = self.report.iter().enumerate().filter(|(_, each)| self.is_by(*each));
        // Without a store's answer, the report names the rule that refused.
        let by_rule = self.reason.is_by_rule();
        by_status.map(|(at, _)| at).chain(by_rule.then_some(0))
    }

    /// Whether a policy refused, by what the store said of it.
    fn is_by(&self, (policy, status): (&Policy, &Status)) -> bool {
        match self.reason {
            Reason::NeverPossible => status.wait() == Wait::Never,
            // A blocked key is answered by its block alone.
            Reason::Blocked => is_refusing_block((policy, status)),
            _ => status.wait() != Wait::None,
        }
    }

    /// Returns the time until the same request would pass, if no other request is granted
    /// meanwhile: the longest wait of the policies that refused, or the rest of the time of a
    /// block. `None` if waiting is not known to help.
    ///
    /// It is a second for want of a [slot](crate::Slot), which may come back at any time.
    pub fn retry_after(&self) -> Option<Duration> {
        if !matches!(self.reason, Reason::QuotaExceeded | Reason::Blocked) {
            return None;
        }
        let each = self.report.iter().filter(|each| self.is_by(*each)).filter_map(|(policy, status)| {
            match status.wait() {
                Wait::For(_) if policy.is_in_flight() => Some(SLOT_RETRY),
                Wait::For(wait) => Some(wait),
                Wait::None | Wait::Never => None,
            }
        });
        each.max()
    }

    /// Returns the value of `Retry-After` (RFC 9110, section 10.2.3): [`Denial::retry_after`] in
    /// whole seconds, rounded up, at least 1.
    ///
    /// It is 1 if the store is unavailable or the process stops, so that clients do not retry at
    /// once.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        match self.reason {
            Reason::QuotaExceeded | Reason::Blocked => self.retry_after().map(|wait| seconds_up(wait).max(1)),
            Reason::Unavailable | Reason::Stopping => Some(1),
            Reason::NeverPossible
            | Reason::NothingAllowed
            | Reason::NoKey
            | Reason::InvalidLimit
            | Reason::NoPeerAddress => None,
        }
    }

    /// Returns the status code of the answer, outside of gRPC.
    pub fn status(&self) -> StatusCode {
        self.reason.status()
    }
}

impl Report {
    /// Returns the denial that a request would get in this state. `None` if it would pass.
    ///
    /// ```
    /// use tollgate::extract::global;
    /// use tollgate::{Head, Policy, PolicyExt, Quota, RequestLimiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
    /// let limiter = RequestLimiter::new(Policy::new("api", Quota::per_day(1)).by(global()));
    /// let request = http::Request::get("/").body(()).unwrap();
    /// let head = Head::from(&request);
    /// assert!(limiter.look(&head).await?.denial().is_none());
    /// limiter.check(&head).await?;
    /// let denial = limiter.look(&head).await?.denial().unwrap();
    /// assert_eq!(denial.to_string(), "quota exceeded: api");
    /// # Ok(())
    /// # }
    /// ```
    pub fn denial(&self) -> Option<Denial> {
        (self.verdict().wait() != Wait::None).then(|| Denial::of(self.clone()))
    }
}

/// Whether it is a block that refuses its key.
pub(crate) fn is_refusing_block((policy, status): (&Policy, &Status)) -> bool {
    policy.numbers().is_block() && status.wait() != Wait::None
}

/// The reason and the policies: `quota exceeded: burst, daily`.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.text())?;
        for (n, policy) in self.violated().enumerate() {
            write!(f, "{}{policy}", if n == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Denial {}
