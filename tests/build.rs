//! Compiles the messages of `grpc/echo.proto`, without `protoc`.

use std::error::Error;

const PROTO: &str = "grpc/echo.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    tonic_prost_build::configure().compile_fds(protox::compile([PROTO], ["grpc"])?)?;
    Ok(())
}
