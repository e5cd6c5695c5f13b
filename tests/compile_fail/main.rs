//! Programs that must not compile, and the messages of the compiler.
//!
//! `TRYBUILD=overwrite cargo test -p tollgate-compile-fail` rewrites the `.stderr` files.

use trybuild::TestCases;

/// One run, because each makes a project of its own.
#[test]
fn each_mistake_is_a_compile_error_that_says_what_to_write() {
    let cases = TestCases::new();
    cases.compile_fail("no_failure_policy.rs");
    cases.compile_fail("no_extractor.rs");
    cases.compile_fail("no_key.rs");
    cases.compile_fail("may_answer_later.rs");
}
