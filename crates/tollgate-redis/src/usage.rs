//! The usage of an interval: one call for each question.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Clock, Policy, Timestamp, UsageError};

use crate::commit::CallContext;
use crate::error::Error;
use crate::link::Text;
use crate::question::{ask, read};
use crate::wire::args::ScriptArgs;
use crate::wire::names::BoundedKey;
use crate::wire::numbers::Doubles;

/// The units that `key` used in the last `interval`. `slot` is that of the key.
pub(crate) async fn of_interval(
    context: &Arc<CallContext>,
    hash_slot: u16,
    (policy, key): (&Policy, &BoundedKey),
    interval: Duration,
) -> Result<u64, UsageError> {
    let args = ScriptArgs::new(policy, 0, context.names.log);
    if !args.part.is_log() {
        return Err(UsageError::Algorithm(policy.algorithm()));
    }
    // A longer interval counts no more, and doubles are exact up to here.
    let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).min(1 << 53);
    let name = context.names.of(key, policy);
    let question = async move |context: Arc<CallContext>| -> Result<i64, Error> {
        let build = |text: Text| {
            Some(context.command(context.scripts.usage(args.part), text, 1, |cmd| {
                cmd.arg(&*name);
                if let Some(now) = context.clock.as_ref().map(Clock::now) {
                    cmd.arg(now.as_micros());
                }
                let mut numbers = Doubles::new();
                numbers.push(interval);
                args.write(&mut numbers, Timestamp::EPOCH);
                cmd.arg(numbers.as_bytes());
            }))
        };
        read(context.link.call(hash_slot, &build).await?)
    };
    Ok(ask(context, question).await?.max(0).cast_unsigned())
}
