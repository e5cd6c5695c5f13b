//! What the compiler says. In `compile_fail/*.stderr`, which `TRYBUILD=overwrite cargo test` rewrites.

#[test]
fn a_store_that_can_fail_is_not_taken_without_a_failure_policy() {
    trybuild::TestCases::new().compile_fail("failure/compile_fail/no_failure_policy.rs");
}
