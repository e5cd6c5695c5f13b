//! Callers that wait, by the rules that apply meanwhile.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use tollgate_core::{Reply, Store};

use super::decider::Decider;
use super::live::Live;
use super::patience::Patience;
use super::permit::Permit;
use super::queue_place::after_delay;
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
        self: &Arc<Self>,
        asks: impl Fn(&Decider<S>) -> Result<Result<Asks, Denial>, E>,
        at_most: Option<Duration>,
    ) -> Result<Result<Allowed<S>, Denial>, E> {
        let mut place = None;
        loop {
            let decider = Guard::into_inner(self.for_request());
            let asks = match decider.shown(asks(&decider)?) {
                Ok(asks) => asks,
                Err(denial) => return Ok(Err(denial)),
            };
            let permit = match at_most {
                Some(at_most) => {
                    let (patience, place_so_far) = (Patience::ForAll(at_most), place.unwrap_or_default());
                    match decider.in_turn(&asks, &patience, place_so_far, self).await {
                        Waited::Over(Ok(admission)) => match decider.permit(asks, admission) {
                            Ok(permit) => Ok(after_delay(permit).await),
                            denied => denied,
                        },
                        Waited::Over(Err(denial)) => {
                            decider.count(&denial, &asks);
                            Err(denial)
                        }
                        Waited::Replaced(kept) => {
                            place = Some(kept);
                            continue;
                        }
                    }
                }
                None => {
                    let asked = match decider.begin(&asks, None, place, self) {
                        Reply::Now(admission) => Waited::Over(admission),
                        Reply::Later(asking) => asking.await,
                    };
                    match asked {
                        Waited::Over(admission) => {
                            decider.show(&asks, &admission);
                            decider.permit(asks, admission)
                        }
                        Waited::Replaced((kept, _)) => {
                            place = Some(kept);
                            continue;
                        }
                    }
                }
            };
            return Ok(permit.map(|permit| (decider, permit)));
        }
    }
}
