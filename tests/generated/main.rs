//! The code of the gRPC services is generated without `protoc`, and checked in.
//!
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-generated --features generators` writes it.

use std::path::Path;

/// Files from the root of the repository. What is generated from them is next to them.
const PROTOS: [&str; 2] = ["examples/proto/helloworld.proto", "tests/grpc/proto/echo.proto"];

/// The description of the first, which a reflection service sends.
const DESCRIPTORS: &str = "examples/proto/helloworld.bin";

#[test]
fn checked_in_grpc_code_is_what_the_generators_write() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for proto in PROTOS.map(|proto| root.join(proto)) {
        let mut compiler = protox::Compiler::new([proto.parent().unwrap()]).unwrap();
        compiler.include_source_info(true).include_imports(true).open_file(&proto).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let generator = tonic_prost_build::configure().build_transport(false).out_dir(&directory);
        generator.compile_fds(compiler.file_descriptor_set()).unwrap();

        let code = proto.with_extension("rs");
        let generated = directory.path().join(code.file_name().unwrap());
        assert_current(&code, &std::fs::read(generated).unwrap());
        let descriptors = proto.with_extension("bin");
        if descriptors == root.join(DESCRIPTORS) {
            assert_current(&descriptors, &compiler.encode_file_descriptor_set());
        }
    }
}

/// Asserts what a checked-in file holds, or writes it first.
fn assert_current(file: &Path, expected: &[u8]) {
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        std::fs::write(file, expected).expect("a writable file");
    }
    assert!(
        std::fs::read(file).is_ok_and(|found| found == expected),
        "{} is not current: run `TOLLGATE_BLESS=1 cargo test -p tollgate-generated --features generators`",
        file.display()
    );
}
