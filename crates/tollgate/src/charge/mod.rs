//! Charges that follow the work: what a request costs is often known only at its end.

mod at_end;
mod by_response;
mod corrected;
#[cfg(feature = "axum")]
mod extractor;
mod reservation;
mod settler;
mod web_trailers;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::{Key, Settled, Stamp};

use crate::decision::{Denial, GrantStamp, InForce};
use crate::plan::{Ask, PolicyRef, RuleNumber};
use crate::time::ending::Home;

pub(crate) use at_end::ChargesAtEnd;
pub(crate) use by_response::{ByResponse, ByTrailers};
pub(crate) use corrected::Corrected;
use reservation::Reservation;
pub(crate) use settler::CorrectionTask;

pub use crate::rule::response_head::ResponseHead;

/// What one request was charged by one policy, until it is settled.
///
/// A rule that [reserves](crate::Rule::reserve) charges an estimate before the work. The handler
/// corrects it:
///
/// - [`used`](Charge::used) counts what the work has used so far, without asking the store;
/// - [`extend`](Charge::extend) asks for more room before more is used;
/// - [`settle`](Charge::settle) corrects the charge to the total.
///
/// With the feature `axum` a handler takes it as an argument. Elsewhere it is in the request's
/// extensions: see [`Charges`]. A [`Permit`](crate::Permit::charge) of a limiter has it.
///
/// Clones are handles of one charge, and it may move into the body of the response. **The drop of
/// the last clone settles a charge that `settle` has not**, to what `used` has counted. A client
/// that goes away pays for what was produced, and not for the rest of the estimate. If `used` was
/// never called, the estimate stays charged: a client gains nothing by going away.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, body::Body, response::Response, routing::post};
/// use tokio_stream::{StreamExt, iter};
/// use tollgate::extract::header;
/// use tollgate::{Charge, Policy, PolicyExt, Quota, RateLimitLayer};
///
/// async fn chat(charge: Charge) -> Response {
///     let model = iter(["Hello", ", ", "Ada"]);
///     let counted = model.map(move |token| {
///         charge.used(1);
///         Ok::<_, std::io::Error>(token)
///     });
///     // Settled when the stream ends or the client leaves.
///     Response::new(Body::from_stream(counted))
/// }
///
/// let tokens = Policy::new("tokens", Quota::per_minute(10_000));
/// let layer = RateLimitLayer::new(tokens.by(header("x-api-key")).reserve(|_| 500));
/// let app: Router = Router::new().route("/chat", post(chat)).layer(layer);
/// # }
/// ```
#[derive(Clone)]
pub struct Charge(Arc<Shared>);

struct Shared {
    in_force: Arc<InForce>,
    /// Of the empty key, if the rule did not apply to the request: nothing is charged.
    ask: Ask,
    /// `None` once it is settled.
    reservation: Mutex<Option<Reservation>>,
    home: Home,
}

impl Charge {
    /// A charge of what was asked. `granted` identifies the units in the store that granted them,
    /// if it is known that one did.
    pub(crate) fn new(in_force: &Arc<InForce>, ask: Ask, granted: Option<GrantStamp>) -> Charge {
        let reservation = Mutex::new(Some(Reservation::new(ask.cost, granted)));
        Charge(Arc::new(Shared { in_force: Arc::clone(in_force), ask, reservation, home: Home::here() }))
    }

    /// That of a rule that did not apply to the request.
    pub(crate) fn without_key(in_force: &Arc<InForce>, rule: RuleNumber) -> Charge {
        Charge::new(in_force, Ask { policy: rule.into(), key: Key::from(""), cost: 0 }, None)
    }

    /// A charge of a policy under which nothing was granted yet.
    pub(crate) fn of_nothing(in_force: &Arc<InForce>, policy: PolicyRef, key: &Key) -> Charge {
        // Of no units, which no refund looks for.
        let nothing = GrantStamp { stamp: Stamp::default(), share: None };
        Charge::new(in_force, Ask { policy, key: key.clone(), cost: 0 }, Some(nothing))
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        self.0.in_force.plan.policy(&self.0.ask.policy).name()
    }

    /// Returns the units that were reserved: the estimate and its extensions. 0 once it is settled,
    /// and if the rule did not apply to the request.
    pub fn reserved(&self) -> u64 {
        self.0.reservation().as_ref().map_or(0, Reservation::reserved)
    }

    /// Returns the units that [`used`](Charge::used) has counted. 0 once it is settled.
    pub fn used_so_far(&self) -> u64 {
        self.0.reservation().as_ref().and_then(Reservation::used).unwrap_or(0)
    }

    /// Counts units that the work has used, in addition to those counted before. It does not ask
    /// the store, and does not stop at what was reserved: [`extend`](Charge::extend) first, to make
    /// no debt.
    ///
    /// `used(0)` says that the work is counted from now on. A client that leaves before the first
    /// unit then pays nothing, not the estimate.
    pub fn used(&self, units: u64) {
        if let Some(reservation) = &mut *self.0.reservation() {
            reservation.use_up(units);
        }
    }

    /// Asks for `units` more, before the work uses them. If they are refused, end the work, or go
    /// on with less.
    ///
    /// Say first what was [used](Charge::used): of grants that are used up, nothing is kept in
    /// memory. Of others, 128 are kept that other requests of the key came between. Beyond that the
    /// oldest count as used, and are not refunded. It never waits: a leaky bucket refuses what its
    /// queue would delay. It always succeeds if the rule did not apply to the request. What is
    /// granted after it was settled stays charged. If the future is dropped before it is ready, the
    /// units may have been charged.
    ///
    /// # Errors
    /// A [`Denial`] of this policy, under which nothing was charged.
    pub async fn extend(&self, units: u64) -> Result<(), Denial> {
        let Shared { in_force, ask, .. } = &*self.0;
        if ask.key.is_empty() || units == 0 {
            return Ok(());
        }
        let granted = in_force.extend(Ask { cost: units, ..ask.clone() }).await?;
        if let Some(reservation) = &mut *self.0.reservation() {
            reservation.extend(in_force.plan.policy(&ask.policy), units, granted);
        }
        Ok(())
    }

    /// Corrects the charge to the `total` of units that the work has used.
    ///
    /// Less than reserved is refunded, to the window that paid and to no other; but not what
    /// [`used`](Charge::used) has counted of earlier grants. More is charged without asking: it is
    /// [debt](Settled::debt) where nothing is left, up to one more capacity. Later requests are
    /// refused until it is paid.
    ///
    /// The first call counts. A later one changes nothing and returns zeros. It goes on in a task
    /// if the caller leaves.
    ///
    /// While a store cannot be asked, the charge stays as it is. The units that are
    /// [charged](Settled::charged) may then be more than `total`. Units that could not be charged
    /// are [forgiven](Settled::forgiven), and so are all units of a request that a failure policy
    /// let pass.
    ///
    /// If the store does not answer in time, the units of the correction are
    /// [unknown](Settled::unknown). A charge of more than was reserved then goes on in a task, for
    /// a minute at most. Observers see how it ends.
    pub async fn settle(&self, total: u64) -> Settled {
        match self.0.take() {
            Some(reservation) => self.0.settle(reservation, total).finish().await,
            None => Settled::default(),
        }
    }
}

/// Settles several charges, and waits for all. What a store over a network can send together goes
/// out in one call.
pub(crate) async fn settle_all(charges: Vec<(Charge, u64)>) -> Vec<Settled> {
    let start = |(charge, total): &(Charge, u64)| Some(charge.0.settle(charge.0.take()?, *total));
    // All are started before the first is waited for.
    let started: Vec<Option<settler::Correction>> = charges.iter().map(start).collect();
    let mut settled = Vec::with_capacity(started.len());
    for correction in started {
        settled.push(match correction {
            Some(correction) => correction.finish().await,
            None => Settled::default(),
        });
    }
    settled
}

impl Charge {
    /// Settles it without waiting for the end. Returns what goes on.
    pub(crate) fn start(&self, total: u64) -> Option<CorrectionTask> {
        let reservation = self.0.take()?;
        self.0.settle(reservation, total).detach()
    }
}

impl Shared {
    fn reservation(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Reservation> {
        self.reservation().take()
    }

    fn settle(&self, reservation: Reservation, total: u64) -> settler::Correction {
        settler::start(&self.in_force, &self.ask, reservation, total, &self.home)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(reservation) = self.take() else { return };
        match reservation.used() {
            Some(used) => drop(self.settle(reservation, used).detach()),
            None => settler::keep(&self.in_force, &self.ask, reservation),
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, which may be a secret.
        f.debug_struct("Charge").field("policy", &self.policy()).finish_non_exhaustive()
    }
}

/// The [`Charge`] of each rule that [reserves](crate::Rule::reserve), in the extensions of a
/// request that passes.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::charge::Charges;
///
/// async fn service(request: Request<String>) -> Response<String> {
///     let charges = request.extensions().get::<Charges>().expect("a layer reserves");
///     let tokens = charges.of("tokens").expect("a rule reserves tokens");
///     tokens.settle(137).await;
///     Response::new("Hello".to_owned())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Charges(Vec<Charge>);

impl Charges {
    /// Returns the charge of the policy with this name. `None` if no rule of that name reserves.
    pub fn of(&self, policy: &str) -> Option<&Charge> {
        self.0.iter().find(|charge| charge.policy() == policy)
    }

    /// Returns all, in the order of their rules.
    pub fn iter(&self) -> impl Iterator<Item = &Charge> {
        self.0.iter()
    }

    /// Adds the charges of another layer.
    pub(crate) fn extend(&mut self, charges: impl IntoIterator<Item = Charge>) {
        self.0.extend(charges);
    }
}
