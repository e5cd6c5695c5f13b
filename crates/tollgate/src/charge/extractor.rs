//! A charge as an axum extractor.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use super::{Charge, Charges};

/// Feature `axum`. The charge of the only rule that reserves. If there is none or there are
/// several, the request is answered 500, and the log says once why: take [`Charges`] if there are
/// several. `Option<Charge>` is `None` then.
impl<S: Sync> FromRequestParts<S> for Charge {
    type Rejection = MissingCharge;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Charge, MissingCharge> {
        only_charge(parts)
    }
}

/// Feature `axum`. `None` unless exactly one rule reserves.
impl<S: Sync> OptionalFromRequestParts<S> for Charge {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Charge>, Infallible> {
        Ok(only_charge(parts).ok())
    }
}

/// Feature `axum`. Empty without a rule that reserves.
impl<S: Sync> FromRequestParts<S> for Charges {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Charges, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

fn only_charge(parts: &Parts) -> Result<Charge, MissingCharge> {
    let charges = parts.extensions.get::<Charges>().map_or(&[] as &[Charge], |charges| &charges.0);
    match charges {
        [charge] => Ok(charge.clone()),
        others => Err(MissingCharge { found: others.len() }),
    }
}

/// The error of a handler that asks for a [`Charge`] without exactly one rule that reserves. The
/// answer is a 500 without a body: it is a mistake in the server, and only the log names it.
#[derive(Clone, Debug)]
pub struct MissingCharge {
    found: usize,
}

impl fmt::Display for MissingCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.found {
            0 => {
                "a handler asks for a `tollgate::Charge`, but no layer around it reserves: call `.reserve(..)` on a \
                 rule of its `RateLimitLayer`"
            }
            _ => {
                "a handler asks for a `tollgate::Charge`, but several rules reserve: take `tollgate::Charges` and \
                 name the policy"
            }
        })
    }
}

impl std::error::Error for MissingCharge {}

impl IntoResponse for MissingCharge {
    fn into_response(self) -> Response {
        #[cfg(feature = "tracing")]
        {
            static LOGGED: std::sync::Once = std::sync::Once::new();
            LOGGED.call_once(|| tracing::error!("{self}"));
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
