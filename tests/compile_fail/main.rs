//! Programs that must not compile, and the messages of the compiler.
//!
//! `TRYBUILD=overwrite cargo test -p tollgate-compile-fail` rewrites the `.stderr` files.

#[test]
fn a_fallible_store_without_a_failure_policy_does_not_compile() {
    trybuild::TestCases::new().compile_fail("no_failure_policy.rs");
}
