//! What must be true of the streams of a key, by their journals.
//!
//! The times of steps are known within brackets. Each check takes the ends of brackets that excuse
//! the most, and has no other tolerance.

use tollgate::{Algorithm, Policy};

use crate::gateways::history::{NEVER, Stream, UnitRequest};
use crate::gateways::plan::WINDOW;

fn window() -> i64 {
    i64::try_from(WINDOW.as_micros()).unwrap()
}

/// The number of the aligned window of a time.
fn number_of(time: i64) -> i64 {
    time / window()
}

fn is_aligned(policy: &Policy) -> bool {
    matches!(policy.algorithm(), Algorithm::FixedWindow { aligned: true })
}

fn is_bucket(policy: &Policy) -> bool {
    matches!(policy.algorithm(), Algorithm::Gcra)
}

/// What asking has charged never exceeds the quota.
pub(crate) fn grants_stay_within_the_quota(policy: &Policy, streams: &[&Stream]) {
    if is_bucket(policy) { bucket_holds(policy, streams) } else { windows_hold(policy, streams) }
}

fn windows_hold(policy: &Policy, streams: &[&Stream]) {
    let in_window = |other: &UnitRequest, grant: &UnitRequest| {
        if is_aligned(policy) {
            let number = number_of(grant.at.from);
            [other.at.from, other.at.to, grant.at.to].into_iter().all(|time| number_of(time) == number)
        } else {
            other.at.from > grant.at.to - window()
        }
    };
    for grant in streams.iter().flat_map(|stream| stream.grants()) {
        let charged_of = |stream: &&Stream| -> u64 {
            let is_settled = stream.end.is_some_and(|end| end.at.from <= grant.at.to);
            stream
                .kept()
                .filter(|(other, _)| other.at.to < grant.at.from && in_window(other, grant))
                .map(|(other, kept)| if is_settled { kept } else { other.units })
                .sum()
        };
        let charged: u64 = streams.iter().map(charged_of).sum();
        assert!(
            charged + grant.units <= policy.capacity(),
            "{}: {grant:?} was granted although {charged} units were charged",
            policy.name()
        );
    }
}

/// From any grant to any later one, a bucket grants its burst, what its rate has filled, and what
/// was refunded.
fn bucket_holds(policy: &Policy, streams: &[&Stream]) {
    let mut grants: Vec<&UnitRequest> = streams.iter().flat_map(|stream| stream.grants()).collect();
    grants.sort_by_key(|grant| grant.at.to);
    let mut ends: Vec<_> =
        streams.iter().filter_map(|stream| Some((stream.end?, stream.reserved()))).collect();
    ends.sort_by_key(|(end, _)| end.at.from);
    for first in &grants {
        let start = first.at.from;
        let mut refunds = ends.iter().filter(|(end, _)| end.at.to >= start).peekable();
        let (mut granted, mut refunded) = (0, 0);
        for grant in grants.iter().filter(|grant| grant.at.from >= start) {
            granted += grant.units;
            while let Some((end, reserved)) = refunds.next_if(|(end, _)| end.at.from <= grant.at.to) {
                refunded += reserved - end.total;
            }
            assert!(
                granted <= filled(policy, grant.at.to - start) + refunded,
                "{}: {granted} units within {} µs, and {refunded} refunded",
                policy.name(),
                grant.at.to - start
            );
        }
    }
}

/// The burst of a bucket, and what its rate fills in so many microseconds.
fn filled(policy: &Policy, micros: i64) -> u64 {
    let (micros, window) = (u64::try_from(micros).unwrap(), u64::try_from(window()).unwrap());
    policy.capacity() + policy.quota().limit() * micros / window
}

/// What is produced in a window is at most the quota, and what live streams had reserved before.
pub(crate) fn products_stay_within_the_quota(policy: &Policy, streams: &[&Stream]) {
    let mut chunks: Vec<_> = streams.iter().flat_map(|stream| &stream.chunks).collect();
    chunks.sort_by_key(|chunk| chunk.to);
    let starts: Vec<i64> = if is_aligned(policy) {
        chunks.iter().map(|chunk| number_of(chunk.to) * window()).collect()
    } else {
        // The worst windows end with a unit, or begin when a stream has given up the rest.
        let ends = streams.iter().map(|stream| stream.lives_until()).filter(|end| *end != NEVER);
        chunks.iter().map(|chunk| chunk.to - window()).chain(ends.map(|end| end + 1)).collect()
    };
    let quota = if is_bucket(policy) { filled(policy, window()) } else { policy.capacity() };
    for start in starts {
        let from = chunks.partition_point(|chunk| chunk.to < start);
        let to = chunks.partition_point(|chunk| chunk.to <= start + window());
        let produced = chunks[from..to].iter().filter(|chunk| chunk.from >= start).count();
        let unused: u64 = streams.iter().map(|stream| unused_before(stream, start)).sum();
        assert!(
            u64::try_from(produced).unwrap() <= quota + unused,
            "{}: {produced} units in a window, and {unused} were reserved before",
            policy.name()
        );
    }
}

/// The most that a stream had reserved and not produced at a time.
fn unused_before(stream: &Stream, time: i64) -> u64 {
    if stream.lives_until() < time {
        return 0;
    }
    let reserved: u64 = stream.grants().filter(|grant| grant.at.from <= time).map(|grant| grant.units).sum();
    let produced = stream.chunks.partition_point(|chunk| chunk.to < time);
    reserved.saturating_sub(u64::try_from(produced).unwrap())
}

/// Whether units were refunded after the window that paid for them.
pub(crate) fn is_refunded_late(policy: &Policy, stream: &Stream) -> bool {
    let Some(end) = stream.end else { return false };
    let is_late = |grant: &UnitRequest| {
        if is_aligned(policy) {
            number_of(end.at.from) > number_of(grant.at.to)
        } else {
            end.at.from >= grant.at.to + window()
        }
    };
    stream.kept().any(|(grant, kept)| kept < grant.units && is_late(grant))
}

/// The first `settle` charges what was used, and a second one nothing.
pub(crate) fn charges_settle_once(stream: &Stream) {
    let total = stream.end.map_or(0, |end| end.total);
    let expected = [[total, 0, 0], [0; 3]];
    assert!(expected.starts_with(&stream.settled), "{:?} after {:?}", stream.settled, stream.end);
}
