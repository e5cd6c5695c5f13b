//! Callers that wait, by the rules that apply meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Reply, Store};

use super::decider::Decider;
use super::live::Live;
use super::permit::Permit;
use super::waiting::{Waited, Waiting};
use crate::decision::Denial;
use crate::plan::Asks;
use crate::store::NeverFails;

/// The permit of a caller, with what decided.
pub(crate) type Allowed<S> = (Arc<Decider<S>>, Permit);

impl<S: Store<Error: NeverFails>> Live<S> {
    /// Charges what `asks` makes by the rules that apply, and if they are replaced while the caller
    /// waits, by those that apply then. With `at_most` it waits until they allow it, otherwise for
    /// slots only.
    pub(crate) async fn ask_in_turn<E>(
        &self,
        asks: impl Fn(&Decider<S>) -> Result<Result<Asks, Denial>, E>,
        at_most: Option<Duration>,
    ) -> Result<Result<Allowed<S>, Denial>, E> {
        let mut waiting = Waiting::default();
        loop {
            let decider = self.load_full();
            let asks = match decider.shown(asks(&decider)?) {
                Ok(asks) => asks,
                Err(denial) => return Ok(Err(denial)),
            };
            let waited = match (at_most, decider.plan().waits(&asks, None)) {
                (Some(at_most), _) => decider.admit(asks, at_most, waiting, self).await,
                (None, Some(of_each)) => {
                    match decider.claim_in_turn(asks.clone(), of_each, None, waiting, self).await {
                        Waited::Over(claimed) => {
                            Waited::Over(decider.counted(asks, Reply::Now(claimed)).await)
                        }
                        Waited::Replaced(kept) => Waited::Replaced(kept),
                    }
                }
                (None, None) => Waited::Over(decider.charge(asks).await),
            };
            match waited {
                Waited::Over(decided) => return Ok(decided.map(|permit| (decider, permit))),
                Waited::Replaced(kept) => waiting = kept,
            }
        }
    }
}
