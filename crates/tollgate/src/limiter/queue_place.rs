//! The place of a delayed request in the queue of a leaky bucket.

use std::future::Future;

use tokio::time::sleep_until;

use super::permit::Permit;
use crate::time::ending::Home;
use crate::time::timer_after;

/// The charge of a delayed request. Refunded if this is dropped before the request passes, because
/// the caller has left.
struct QueuePlace {
    /// `None` once the request has passed.
    permit: Option<Permit>,
    home: Home,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        permit.in_force.end(&self.home, || permit.give_back());
    }
}

/// The permit after its delay, if it has one.
pub(crate) async fn after_delay(permit: Permit) -> Permit {
    match permit.delay().is_zero() {
        true => permit,
        false => once_due(permit).await,
    }
}

/// The permit once its place in a queue comes. Given back if this is dropped before.
pub(crate) fn once_due(permit: Permit) -> impl Future<Output = Permit> + Send + use<> {
    // The delay begins now, also if this is polled later.
    let until = timer_after(permit.delay());
    let mut place = QueuePlace { permit: Some(permit), home: Home::here() };
    async move {
        sleep_until(until).await;
        place.permit.take().expect("only the end of this takes it").delayed()
    }
}
