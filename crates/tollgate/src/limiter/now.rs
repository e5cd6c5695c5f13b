//! Checks by callers that cannot wait.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Key, Store};

use super::Limiter;
use super::permit::Permit;
use crate::decision::Denial;
use crate::store::{AnswersNow, NeverFails};

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// [`Limiter::check`] for callers that cannot wait, such as an interceptor, or a function that
    /// is not `async`. The store is in memory. All policies are asked for one key and cost.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// let connections = Limiter::new([Policy::new("connections", Quota::per_second(1))]);
    /// let peer = Key::from("192.0.2.1");
    /// assert!(connections.check_now(&peer, 1).is_ok());
    /// assert!(connections.check_now(&peer, 1).is_err());
    /// ```
    ///
    /// # Errors
    /// Those of [`Limiter::check`].
    ///
    /// # Panics
    /// If a store of your own says that it [answers at once](AnswersNow), and does not.
    pub fn check_now(&self, key: &Key, cost: u64) -> Result<Permit, Denial>
    where
        // Not of the whole `impl`: only so does the compiler say what to write instead.
        S: AnswersNow,
    {
        match pin!(self.check(key, cost)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => decided,
            Poll::Pending => panic!("the store says that it answers at once, and does not"),
        }
    }
}
