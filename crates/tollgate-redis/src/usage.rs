//! The usage of an interval: one call for each question.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Clock, Policy, UsageError};

use crate::commit::Target;
use crate::error::Error;
use crate::link::Text;
use crate::question::{in_runtime, read};
use crate::wire::names::{BoundedKey, Name};
use crate::wire::numbers::Numbers;
use crate::wire::terms::Terms;

/// A question about the log under a key.
struct Question {
    slot: u16,
    name: Name,
    terms: Terms,
    /// In microseconds.
    interval: u64,
}

/// The units that `key` used in the last `interval`. `slot` is that of the key.
pub(crate) async fn of_interval(
    target: &Arc<Target>,
    slot: u16,
    (policy, key): (&Policy, &BoundedKey),
    interval: Duration,
) -> Result<u64, UsageError> {
    let terms = Terms::new(policy, 0, target.names.log);
    if !terms.part.is_log() {
        return Err(UsageError::Algorithm(policy.algorithm()));
    }
    // A longer interval counts no more, and doubles are exact up to here.
    let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).min(1 << 53);
    let question = Question { slot, name: target.names.of(key, policy), terms, interval };
    Ok(in_runtime(target, ask(Arc::clone(target), question)).await?)
}

async fn ask(target: Arc<Target>, question: Question) -> Result<u64, Error> {
    let build = |text: Text| {
        let script = target.scripts.usage(question.terms.part);
        Some(target.command(script, text, 1, |cmd| {
            cmd.arg(&*question.name);
            if let Some(now) = target.clock.as_ref().map(Clock::now) {
                cmd.arg(now.as_micros());
            }
            let mut numbers = Numbers::new();
            numbers.push(question.interval);
            question.terms.write(&mut numbers, false);
            cmd.arg(numbers.as_bytes());
        }))
    };
    let units: i64 = read(target.link.call(question.slot, &build).await?)?;
    Ok(units.max(0).cast_unsigned())
}
