//! The renewals of slots: a call of its own for the slots of each node.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tollgate_core::{End, Grant, Renewal, RenewalReport};

use crate::answer_in_time::AnswerInTime;
use crate::commit::{Commit, RefundEntry};
use crate::error::Error;

/// The most renewals in a call. As many are a request, so that they share a place in the queue.
const RENEWALS_OF_A_CALL: usize = 100;

/// Renewals of keys that are together in a Cluster, each with the place of its grant.
type SlotRenewals = Vec<(usize, RefundEntry)>;

/// Whether each slot of a call is held.
pub(crate) type RenewalAnswer = AnswerInTime<Vec<bool>>;

type NodeFuture = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Renews slots by `send`, which queues entries of a hash slot of a Cluster. Fails if a node
/// answers no call.
pub(crate) fn renew<S>(
    commit: &Commit,
    grants: &[Grant<'_>],
    report: &RenewalReport,
    send: S,
) -> impl End<(), Error> + use<S>
where
    S: Fn(u16, Vec<RefundEntry>) -> Result<RenewalAnswer, Error> + Clone + Send + 'static,
{
    let context = &commit.context;
    let mut of_hash_slot: BTreeMap<u16, SlotRenewals> = BTreeMap::new();
    for (at, grant) in grants.iter().enumerate() {
        if !grant.policy.is_in_flight() {
            // Those of other policies have no time to live.
            report(at, Renewal::Held);
            continue;
        }
        let key = context.names.bounded(grant.key);
        let entry = RefundEntry::renewal(&context.names, &key, grant.policy, grant.stamp);
        of_hash_slot.entry(commit.hash_slot(&key)).or_default().push((at, entry));
    }
    let mut of_node: BTreeMap<u64, Vec<SentRenewals>> = BTreeMap::new();
    for (hash_slot, renewals) in of_hash_slot {
        let node = if context.link.has_hash_slots() { context.link.node(hash_slot) } else { 0 };
        of_node.entry(node).or_default().extend(sent(&send, hash_slot, renewals));
    }
    let finish = |sent| -> NodeFuture { Box::pin(finish(send.clone(), sent, Arc::clone(report))) };
    all(of_node.into_values().map(finish).collect())
}

/// A call that renews slots.
struct SentRenewals {
    hash_slot: u16,
    renewals: SlotRenewals,
    answer: Result<RenewalAnswer, Error>,
}

/// Sends renewals of one hash slot of a Cluster, in few calls.
fn sent(
    send: &impl Fn(u16, Vec<RefundEntry>) -> Result<RenewalAnswer, Error>,
    hash_slot: u16,
    renewals: SlotRenewals,
) -> Vec<SentRenewals> {
    let mut sent = Vec::new();
    let mut renewals = renewals.into_iter().peekable();
    while renewals.peek().is_some() {
        let renewals: SlotRenewals = renewals.by_ref().take(RENEWALS_OF_A_CALL).collect();
        let answer = send(hash_slot, renewals.iter().map(|(_, entry)| entry.clone()).collect());
        sent.push(SentRenewals { hash_slot, renewals, answer });
    }
    sent
}

/// Waits for the renewals of one node. Fails if it answers none.
async fn finish(
    send: impl Fn(u16, Vec<RefundEntry>) -> Result<RenewalAnswer, Error>,
    calls: Vec<SentRenewals>,
    report: RenewalReport,
) -> Result<(), Error> {
    let (mut is_answered, mut failure) = (false, None);
    let mut claims: Vec<SentRenewals> = Vec::new();
    for SentRenewals { hash_slot, renewals, answer } in calls {
        match answered(answer).await {
            Ok(held) => {
                is_answered = true;
                let lost = renewals.into_iter().zip(held).filter_map(|((at, entry), is_held)| {
                    if is_held {
                        report(at, Renewal::Held);
                    }
                    (!is_held).then(|| (at, entry.claiming()))
                });
                // A renewal that is executed late, after its slot was released, must not claim it
                // again. So only a holder that still waits claims, once the slot is not held.
                claims.extend(sent(&send, hash_slot, lost.collect()));
            }
            Err(error) => {
                renewals.iter().for_each(|(at, _)| report(*at, Renewal::Unanswered));
                failure = failure.or(Some(error));
            }
        }
    }
    for SentRenewals { renewals, answer, .. } in claims {
        let held = answered(answer).await;
        for (place, (at, _)) in renewals.iter().enumerate() {
            report(
                *at,
                match &held {
                    Ok(held) if held.get(place) == Some(&true) => Renewal::Held,
                    Ok(_) => Renewal::Lost,
                    Err(_) => Renewal::Unanswered,
                },
            );
        }
    }
    failure.filter(|_| !is_answered).map_or(Ok(()), Err)
}

async fn answered(answer: Result<RenewalAnswer, Error>) -> Result<Vec<bool>, Error> {
    answer?.await
}

/// Waits for all nodes at once. Returns the failure of the first that failed.
async fn all(mut nodes: Vec<NodeFuture>) -> Result<(), Error> {
    let mut failure = None;
    poll_fn(|cx| {
        nodes.retain_mut(|node| match node.as_mut().poll(cx) {
            Poll::Ready(ended) => {
                failure = failure.take().or(ended.err());
                false
            }
            Poll::Pending => true,
        });
        if nodes.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    failure.map_or(Ok(()), Err)
}
