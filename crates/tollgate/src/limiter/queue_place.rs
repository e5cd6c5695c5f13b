//! The place of a delayed request in the queue of a leaky bucket.

use tokio::time::sleep;

use super::permit::Permit;
use crate::time::ending::Home;

/// The charge of a delayed request. Refunded if this is dropped before the request passes, because
/// the caller has left.
pub(crate) struct QueuePlace {
    /// `None` once the request has passed.
    permit: Option<Permit>,
    home: Home,
}

impl QueuePlace {
    pub(crate) fn new(permit: Permit) -> QueuePlace {
        QueuePlace { permit: Some(permit), home: Home::here() }
    }

    /// Keeps the charge, because the request passes.
    pub(crate) fn keep(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        permit.in_force.end(&self.home, || permit.give_back());
    }
}

/// Waits for the place that a leaky bucket reserved.
pub(crate) async fn after_delay(permit: Permit) -> Permit {
    let delay = permit.delay();
    if delay.is_zero() {
        return permit;
    }
    let mut place = QueuePlace::new(permit);
    sleep(delay).await;
    place.keep().expect("it is kept once").delayed()
}
