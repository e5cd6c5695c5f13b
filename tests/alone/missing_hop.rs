//! A server without peer addresses, behind a proxy that does not send client addresses. Alone in
//! its process, because the message is logged once per process.

use http::Request;
use tollgate::Head;
use tollgate::extract::{AddressExtractor, ClientIp};
use tollgate_tests::{Level, Log};

#[test]
fn behind_trusted_hops_a_missing_address_is_logged_once_with_its_fix() {
    if crate::ran_in_own_process(behind_trusted_hops_a_missing_address_is_logged_once_with_its_fix) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let client = ClientIp::from_header("x-forwarded-for").trusting_hops(1);
    let address = |forwarded: &str| {
        let request = Request::builder().header("x-forwarded-for", forwarded).body(()).unwrap();
        client.address(&Head::from(&request))
    };
    assert!(address("192.0.2.1").is_some());
    assert_eq!(log.lines(), [""; 0], "the peer may be a Unix socket");
    for _ in 0..3 {
        assert!(address("unix:").is_none());
    }
    let [error] = &log.lines()[..] else { panic!("not one line but {:?}", log.lines()) };
    assert!(error.contains("into_make_service_with_connect_info"), "{error}");
}
