//! Which stores a layer or a limiter accepts.

use std::convert::Infallible;

use tollgate_core::{BoxStore, Store};

/// A store that never fails, without its type: for what no request waits for.
pub(crate) type ColdStore = BoxStore<Infallible>;

/// An error that cannot happen: the error of a store that a layer or a limiter accepts.
///
/// A store in memory never fails. A store over a network can, and needs a
/// [failure policy](crate::failure).
#[diagnostic::on_unimplemented(
    message = "this store can fail (`{Self}`), and what happens to requests then has not been chosen",
    label = "can fail",
    note = "write `.fall_back_to(MemoryStore::new(), Share::new(1, 3))` after the store to grant a third of each quota here \
            while it fails, `.fail_closed()` to refuse requests, or `.fail_open()` to let them pass without limit",
    note = "a store over a network needs `.timeout(..)` before that, or requests wait for as long as it does; \
            `.circuit_breaker(..)` spares them that wait",
    note = "these are methods of the trait `tollgate::StoreExt`"
)]
pub trait NeverFails: sealed::Sealed + Sized + Send + 'static {
    /// Converts an error that cannot exist into any type.
    fn never<T>(self) -> T;

    /// A store with this error, without its type.
    #[doc(hidden)]
    fn without_type<S: Store<Error = Self>>(store: S) -> BoxStore<Infallible>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::convert::Infallible {}
}

// Otherwise the compiler recommends `Infallible` instead of a failure policy.
#[diagnostic::do_not_recommend]
impl NeverFails for std::convert::Infallible {
    fn never<T>(self) -> T {
        match self {}
    }

    fn without_type<S: Store<Error = Self>>(store: S) -> BoxStore<Infallible> {
        BoxStore::new(store)
    }
}
