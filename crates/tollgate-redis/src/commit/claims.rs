//! Claims of slots whose callers have gone. What such a claim is granted is refunded as soon as its
//! answer comes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_core::{Quota, SentClaims, StoreError};

use super::caller::ReturnReceiver;
use super::context::CallContext;
use super::refund_batch::RefundEntry;
use super::returns::Returns;
use crate::error::{Cause, Error};

/// Queues a part of [`Returns`].
type SendRefunds = dyn Fn(u16, Vec<RefundEntry>) -> Result<ReturnReceiver, Error> + Send + Sync;

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
        send: impl Fn(u16, Vec<RefundEntry>) -> Result<ReturnReceiver, Error> + Send + Sync + 'static,
    ) -> Claims {
        Claims { counts, context, send: Box::new(send) }
    }

    /// Refunds what a claim was granted, in each hash slot of a Cluster. It is lost if that fails.
    pub(crate) fn give_back(self: &Arc<Self>, returns: Returns) {
        let (claim, claims) = (self.counts.send(1), Arc::clone(self));
        let ttl = returns.entries().filter_map(RefundEntry::ttl).max().unwrap_or(Quota::DEFAULT_TTL);
        self.context.runtime.spawn(async move {
            if timeout(ttl, claims.refund_all(returns)).await.is_ok_and(|result| result.is_ok()) {
                claim.answered();
            }
        });
    }

    /// Sends refunds, again after a pause if nothing was executed: connections that were replaced
    /// during a stall may not be back yet.
    async fn refund_all(&self, returns: Returns) -> Result<(), Error> {
        let (mut returns, mut pause) = (returns, FIRST_PAUSE);
        let parts = std::iter::from_fn(|| returns.send_next(|hash_slot, part| (hash_slot, part))).flatten();
        for (hash_slot, entries) in parts {
            while let Err(error) = self.refund(hash_slot, entries.clone()).await {
                if !error.executed_nothing() {
                    return Err(error);
                }
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(2 * pause);
            }
        }
        Ok(())
    }

    async fn refund(&self, hash_slot: u16, entries: Vec<RefundEntry>) -> Result<(), Error> {
        let answer = (self.send)(hash_slot, entries)?.await;
        answer.unwrap_or_else(|_| Err(Cause::Stopped.into())).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tollgate_core::{Key, Policy, Stamp};

    use super::super::tests::context_without_server;
    use super::*;
    use crate::wire::args::ScriptArgs;

    /// The claim is lost when the slot's time to live has ended.
    #[tokio::test(start_paused = true)]
    async fn a_refused_refund_is_sent_again_after_a_second_at_most() {
        let context = context_without_server();
        let (names, slots) = (&context.names, Policy::in_flight("slots", 5));
        let args = ScriptArgs::new(&slots, 1, names.log);
        let slot = RefundEntry::refund(names, &names.bounded(&Key::from("ada")), args, Stamp::new(1, 1));
        let sent = Arc::new(AtomicUsize::new(0));
        let send = {
            let sent = Arc::clone(&sent);
            move |_, _| {
                sent.fetch_add(1, Ordering::Relaxed);
                Err(Cause::NoConnection.into())
            }
        };
        let counts = SentClaims::default();
        let claims = Arc::new(Claims::new(counts.clone(), Arc::clone(&context), send));
        claims.give_back(Returns::from_iter([(0, slot)]));
        let ms = Duration::from_millis;
        sleep(ms(1)).await;
        for (before, pause) in [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000].into_iter().enumerate() {
            sleep(ms(pause - 2)).await;
            assert_eq!(sent.load(Ordering::Relaxed), before + 1, "before the end of {pause} ms");
            sleep(ms(2)).await;
            assert_eq!(sent.load(Ordering::Relaxed), before + 2, "after {pause} ms");
        }
        assert_eq!((counts.unanswered(), counts.lost()), (1, 0));
        sleep(slots.ttl().unwrap_or_default()).await;
        assert_eq!((counts.unanswered(), counts.lost()), (0, 1));
    }
}
