//! Callers that wait, by the rules that apply meanwhile.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use tollgate_core::Store;

use super::asking::Admission;
use super::decider::Decider;
use super::live::Live;
use super::permit::Permit;
use super::queue_place::after_delay;
use super::until_ready::Patience;
use super::waiting::Waited;
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
        let mut place = Box::default();
        loop {
            let decider = Guard::into_inner(self.for_request());
            let asks = match decider.shown(asks(&decider)?) {
                Ok(asks) => asks,
                Err(denial) => return Ok(Err(denial)),
            };
            let waits = || Some(Patience::ForSlots(decider.waits(&asks, None)?, None));
            let asked = match at_most.map(Patience::ForAll).or_else(waits) {
                Some(patience) => decider.in_turn(&asks, &patience, place, self).await,
                None => Waited::Over(Ok(decider.ask(&asks, None).wait().await)),
            };
            let decided = match asked {
                Waited::Replaced(kept) => {
                    place = kept;
                    continue;
                }
                Waited::Over(asked) => asked,
            };
            let permit = match (decided, at_most) {
                (Ok(admission), Some(_)) => match decider.permit(asks, admission) {
                    Ok(permit) => Ok(after_delay(permit).await),
                    denied => denied,
                },
                (Err(denial), Some(_)) => {
                    decider.count(&denial, &asks);
                    Err(denial)
                }
                (decided, None) => {
                    let admission = decided.unwrap_or_else(|denial| Admission::refused(&denial));
                    decider.show(&asks, &admission);
                    decider.permit(asks, admission)
                }
            };
            return Ok(permit.map(|permit| (decider, permit)));
        }
    }
}
