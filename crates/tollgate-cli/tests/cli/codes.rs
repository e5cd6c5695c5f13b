//! `tollgate code`: what the codes in the log of a service mean.

use crate::run::{shown, tollgate};

#[test]
fn a_code_of_the_log_is_explained() {
    let text = shown(&["code", "TOLLGATE_E02"]);
    assert!(text.starts_with("TOLLGATE_E02: the proxies that `ClientIp` trusts"), "{text}");
    assert!(text.contains("\n  do: trust the networks of your proxies"), "{text}");
    assert_eq!(shown(&["code"]).lines().filter(|line| line.starts_with("TOLLGATE_E")).count(), 12);
}

#[test]
fn what_is_no_code_is_one_error_line() {
    let ran = tollgate(&["code", "E2"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("\"E2\" is not a code such as TOLLGATE_E01"), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}
