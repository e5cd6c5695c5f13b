//! What the compiler says. In `compile_fail/*.stderr`, which `TRYBUILD=overwrite cargo test` rewrites.

#[test]
fn a_fallible_store_without_a_failure_policy_does_not_compile() {
    trybuild::TestCases::new().compile_fail("failure/compile_fail/no_failure_policy.rs");
}
