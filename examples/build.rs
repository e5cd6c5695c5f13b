//! Compiles the messages of the gRPC examples, without `protoc`.

use std::error::Error;
use std::path::PathBuf;

const PROTO: &str = "proto/helloworld.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true).open_file(PROTO)?;
    // The reflection service sends these.
    let descriptors = PathBuf::from(std::env::var("OUT_DIR")?).join("helloworld.bin");
    std::fs::write(descriptors, compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
