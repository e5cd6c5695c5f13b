//! The place of a delayed request in the queue of a leaky bucket.

use std::future::Future;

use tokio::time::sleep;

use super::permit::Permit;
use crate::time::ending::Home;

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

/// The permit once its place comes, if a leaky bucket has reserved one. Given back if this is
/// dropped before.
pub(crate) fn after_delay(permit: Permit) -> impl Future<Output = Permit> + Send + use<> {
    let delay = permit.delay();
    let mut place = QueuePlace { permit: Some(permit), home: Home::here() };
    async move {
        if !delay.is_zero() {
            sleep(delay).await;
        }
        place.permit.take().expect("only the end of this takes it").delayed()
    }
}
