//! A charge as an axum extractor.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::request::Parts;

use super::{Charge, Charges};
use crate::errors::SetupError;

/// Feature `axum`. The charge of the only rule that reserves. If there is none or there are
/// several, the request is answered 500, and the log says once why: take [`Charges`] if there are
/// several. `Option<Charge>` is `None` then.
impl<S: Sync> FromRequestParts<S> for Charge {
    type Rejection = SetupError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Charge, SetupError> {
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

fn only_charge(parts: &Parts) -> Result<Charge, SetupError> {
    let charges = parts.extensions.get::<Charges>().map_or(&[] as &[Charge], |charges| &charges.0);
    match charges {
        [charge] => Ok(charge.clone()),
        others => Err(SetupError::MissingExtension(match others.len() {
            0 => {
                "a `tollgate::Charge`, but no layer around it reserves: call `.reserve(..)` on a rule of its \
                 `RateLimitLayer`"
            }
            _ => {
                "a `tollgate::Charge`, but several rules reserve: take `tollgate::charge::Charges` and name the policy"
            }
        })),
    }
}
