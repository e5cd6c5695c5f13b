//! Claims of slots that were sent to a store, and how many of them were lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the claims of slots that a store has sent: see
/// [`Store::sent_claims`](crate::Store::sent_claims). Clones share the counts.
///
/// ```
/// use tollgate_core::SentClaims;
///
/// let claims = SentClaims::default();
/// let (first, second) = (claims.send(3), claims.send(1));
/// assert_eq!(claims.unanswered(), 4);
/// first.answered();
/// // The connection of the second call is lost.
/// drop(second);
/// assert_eq!((claims.unanswered(), claims.lost()), (0, 1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct SentClaims(Arc<ClaimCounts>);

#[derive(Debug, Default)]
struct ClaimCounts {
    unanswered: AtomicU64,
    lost: AtomicU64,
}

impl SentClaims {
    /// Returns how many claims were sent and not answered yet. A slot that is given back because
    /// its caller has gone counts until its release is answered.
    pub fn unanswered(&self) -> u64 {
        self.0.unanswered.load(Ordering::Acquire)
    }

    /// Returns how many claims were lost since the store was made: sent, and not answered before
    /// the connection, the process or the time to live of the slot ended. The slots of those that
    /// the store granted are held by no caller until their times to live end.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Counts claims that a store sends now. They are lost if the result is dropped without an
    /// answer.
    #[must_use = "claims are lost if it is dropped"]
    pub fn send(&self, claims: u64) -> UnansweredClaims {
        self.0.unanswered.fetch_add(claims, Ordering::Relaxed);
        UnansweredClaims { counts: Arc::clone(&self.0), claims }
    }
}

/// Claims that were sent and not answered yet. Dropped, they are lost.
#[derive(Debug)]
pub struct UnansweredClaims {
    counts: Arc<ClaimCounts>,
    claims: u64,
}

impl UnansweredClaims {
    /// The store has answered, or has certainly executed nothing.
    pub fn answered(mut self) {
        let claims = std::mem::take(&mut self.claims);
        self.counts.unanswered.fetch_sub(claims, Ordering::Release);
    }
}

impl Drop for UnansweredClaims {
    fn drop(&mut self) {
        // Before the other count, so that no claim is in neither.
        self.counts.lost.fetch_add(self.claims, Ordering::Relaxed);
        self.counts.unanswered.fetch_sub(self.claims, Ordering::Release);
    }
}
