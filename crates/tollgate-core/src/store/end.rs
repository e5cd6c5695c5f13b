//! The future of what ends a grant.

use std::future::Future;

/// The future of an operation that ends a grant: see [how](crate::Store#how-a-grant-ends). Every
/// such future implements it.
///
/// A method that returns `impl End<(), E> + use<>` borrows nothing.
pub trait End<T, E>: Future<Output = Result<T, E>> + Send {}

impl<T, E, F: Future<Output = Result<T, E>> + Send> End<T, E> for F {}
