//! Claims of slots whose callers have gone. What such a claim is granted is refunded as soon as its
//! answer comes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_core::{Quota, SentClaims, StoreError};

use super::caller::VerdictReceiver;
use super::context::CallContext;
use super::refund_batch::RefundEntry;
use crate::error::{Cause, Error};

/// Queues refunds whose keys are all in this slot.
type SendRefunds = dyn Fn(u16, Vec<RefundEntry>) -> Result<VerdictReceiver, Error> + Send + Sync;

/// The pauses before a refund is sent again of which nothing was executed.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The claims of a store.
pub(crate) struct Claims {
    pub(crate) counts: SentClaims,
    pub(super) context: Arc<CallContext>,
    send: Box<SendRefunds>,
}

impl Claims {
    pub(super) fn new(
        counts: SentClaims,
        context: Arc<CallContext>,
        send: impl Fn(u16, Vec<RefundEntry>) -> Result<VerdictReceiver, Error> + Send + Sync + 'static,
    ) -> Claims {
        Claims { counts, context, send: Box::new(send) }
    }

    /// Refunds what a claim was granted, in each slot of a Cluster. It is lost if that fails.
    pub(crate) fn give_back(self: &Arc<Self>, of_slot: Vec<(u16, Vec<RefundEntry>)>) {
        let (claim, claims) = (self.counts.send(1), Arc::clone(self));
        let entries = of_slot.iter().flat_map(|(_, entries)| entries);
        let lease = entries.filter_map(RefundEntry::lease).max().unwrap_or(Quota::DEFAULT_LEASE);
        self.context.runtime.spawn(async move {
            if timeout(lease, claims.refund_all(of_slot)).await.is_ok_and(|result| result.is_ok()) {
                claim.answered();
            }
        });
    }

    /// Sends refunds, again after a pause if nothing was executed: connections that were replaced
    /// during a stall may not be back yet.
    async fn refund_all(&self, of_slot: Vec<(u16, Vec<RefundEntry>)>) -> Result<(), Error> {
        let mut pause = FIRST_PAUSE;
        for (slot, entries) in of_slot {
            while let Err(error) = self.refund(slot, entries.clone()).await {
                if !error.executed_nothing() {
                    return Err(error);
                }
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(2 * pause);
            }
        }
        Ok(())
    }

    async fn refund(&self, slot: u16, entries: Vec<RefundEntry>) -> Result<(), Error> {
        let answer = (self.send)(slot, entries)?.await;
        answer.unwrap_or_else(|_| Err(Cause::Stopped.into())).map(drop)
    }
}
