//! `helloworld.Greeter`, the gRPC service next to the HTTP routes.

use tonic::{Request, Response, Status};

use crate::helloworld::greeter_server::Greeter;
use crate::helloworld::{HelloReply, HelloRequest};

/// Greets every caller.
pub(crate) struct Hello;

#[tonic::async_trait]
impl Greeter for Hello {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let message = format!("hello {}", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}
