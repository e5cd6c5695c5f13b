//! The usage of an interval: one call for each question.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Clock, Policy, UsageError};

use crate::commit::CallContext;
use crate::error::Error;
use crate::link::Text;
use crate::question::{in_runtime, read};
use crate::wire::arguments::ScriptArguments;
use crate::wire::names::{BoundedKey, Name};
use crate::wire::numbers::Doubles;

/// A question about the log under a key.
struct IntervalQuestion {
    slot: u16,
    name: Name,
    arguments: ScriptArguments,
    /// In microseconds.
    interval: u64,
}

/// The units that `key` used in the last `interval`. `slot` is that of the key.
pub(crate) async fn of_interval(
    context: &Arc<CallContext>,
    slot: u16,
    (policy, key): (&Policy, &BoundedKey),
    interval: Duration,
) -> Result<u64, UsageError> {
    let arguments = ScriptArguments::new(policy, 0, context.names.log);
    if !arguments.part.is_log() {
        return Err(UsageError::Algorithm(policy.algorithm()));
    }
    // A longer interval counts no more, and doubles are exact up to here.
    let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).min(1 << 53);
    let question = IntervalQuestion { slot, name: context.names.of(key, policy), arguments, interval };
    Ok(in_runtime(context, ask(Arc::clone(context), question)).await?)
}

async fn ask(context: Arc<CallContext>, question: IntervalQuestion) -> Result<u64, Error> {
    let build = |text: Text| {
        let script = context.scripts.usage(question.arguments.part);
        Some(context.command(script, text, 1, |cmd| {
            cmd.arg(&*question.name);
            if let Some(now) = context.clock.as_ref().map(Clock::now) {
                cmd.arg(now.as_micros());
            }
            let mut numbers = Doubles::new();
            numbers.push(question.interval);
            question.arguments.write(&mut numbers, false);
            cmd.arg(numbers.as_bytes());
        }))
    };
    let units: i64 = read(context.link.call(question.slot, &build).await?)?;
    Ok(units.max(0).cast_unsigned())
}
