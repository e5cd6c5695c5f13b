//! The description of the gRPC service, for clients that ask before their first call.

use axum::Router;
use tonic::service::Routes;
use tonic_reflection::server::{Builder, Error};

const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../proto/helloworld.bin");

/// Adds both versions of the reflection service.
///
/// # Panics
/// If the checked-in description is not one.
pub(crate) fn add_to(routes: Router) -> Router {
    try_add_to(routes).expect("a description that the generator wrote")
}

fn try_add_to(routes: Router) -> Result<Router, Error> {
    let reflection = || Builder::configure().register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET);
    let routes = Routes::from(routes).add_service(reflection().build_v1()?);
    Ok(routes.add_service(reflection().build_v1alpha()?).into_axum_router())
}
