//! How the checks of a call are written.

use bb8_redis::redis::Cmd;
use tollgate_core::Timestamp;

use super::alike::Alike;
use super::context::CallContext;
use crate::wire::names::BoundedKey;
use crate::wire::numbers::Doubles;

/// Writes the keys and arguments of acquire.lua, and of track.lua if `tracks`.
pub(super) fn write(cmd: &mut Cmd, groups: &[Alike], tracks: bool, context: &CallContext, now: Timestamp) {
    let (names, mut name) = (&context.names, String::new());
    let mut put = |key: &BoundedKey, form: &[&str]| {
        name.clear();
        names.push(&mut name, key, form);
        cmd.arg(&name);
    };
    for group in groups {
        let forms: Vec<_> = group.args.iter().map(|args| names.form(&args.policy).concat()).collect();
        for set in &group.sets {
            for (key, form) in set.keys.iter().zip(&forms) {
                put(key, &[form]);
            }
        }
    }
    for group in groups {
        for set in &group.sets {
            for (at, args) in group.tracked() {
                put(&set.keys[at], &names.form_of_total(args.policy.name()));
            }
        }
    }
    if let Some(clock) = &context.clock {
        cmd.arg(clock.now().as_micros());
    }
    let mut numbers = Doubles::new();
    for group in groups {
        // Sets with as many callers are a run: their `max` is the same.
        let runs = || group.sets.chunk_by(|a, b| a.callers.len() == b.callers.len());
        numbers.push(group.args.len() as u64);
        numbers.push(group.is_whole().into());
        numbers.push(group.sets.len() as u64);
        numbers.push(group.times.min().into());
        numbers.push(runs().count() as u64);
        group.args.iter().for_each(|args| args.write(&mut numbers, now));
        for run in runs() {
            numbers.push(run.len() as u64);
            numbers.push(group.max_of(run[0].callers.len()).into());
        }
    }
    cmd.arg(numbers.as_bytes());
    if tracks {
        let mut numbers = Doubles::new();
        numbers.push(context.usage_life_ms);
        let args = groups.iter().flat_map(|group| &group.args);
        args.for_each(|args| args.write_tracking(&mut numbers));
        cmd.arg(numbers.as_bytes());
    }
}
