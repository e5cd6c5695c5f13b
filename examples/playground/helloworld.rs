//! `helloworld.Greeter`, generated from `examples/proto/helloworld.proto` by the test in
//! `tests/generated`.

#![allow(unreachable_pub, reason = "generated")]

include!("../proto/helloworld.rs");

/// The description that the reflection service sends.
pub(crate) const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../proto/helloworld.bin");
