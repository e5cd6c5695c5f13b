//! `helloworld.Greeter`, generated from `examples/proto/helloworld.proto` by the test in
//! `tests/generated`.

#![allow(unreachable_pub, reason = "generated")]

include!("../proto/helloworld.rs");
