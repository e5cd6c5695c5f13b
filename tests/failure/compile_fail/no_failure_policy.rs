//! A store that can fail, given to a layer and to a limiter without a word on what its failures mean.

use std::convert::Infallible;
use std::future::Ready;

use tollgate::failure::TimeoutError;
use tollgate::{Check, Grant, Key, Limiter, Policy, Quota, RateLimitLayer, Reply, Store, Times, Verdict};

#[derive(Clone)]
struct Remote;

/// Not an error of this file, which some compilers would quote and others not.
type Error = TimeoutError<Infallible>;

impl Store for Remote {
    type Error = Error;
    type Acquire = Ready<Result<Verdict, Error>>;
    type Done = Ready<Result<(), Error>>;

    fn acquire(&self, _: &[Check<'_>], _: Times) -> Reply<Result<Verdict, Error>, Self::Acquire> {
        unimplemented!()
    }

    fn refund(&self, _: &[Grant<'_>]) -> Reply<Result<(), Error>, Self::Done> {
        unimplemented!()
    }

    fn reset(&self, _: &Key, _: &[&Policy]) -> Reply<Result<(), Error>, Self::Done> {
        unimplemented!()
    }
}

fn main() {
    let _ = RateLimitLayer::per_ip(Quota::per_minute(100)).store(Remote);
    let _ = Limiter::new([]).store(Remote);
}
