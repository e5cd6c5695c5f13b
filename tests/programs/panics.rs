//! A constructor that refuses its arguments names the line that called it.

use std::cell::RefCell;
use std::panic::{self, UnwindSafe};
use std::sync::{Arc, Once};
use std::time::Duration;

use tollgate::exempt::from_networks;
use tollgate::extract::{ClientIp, PeerIp, cookie, global, header};
use tollgate::{
    Algorithm, CircuitBreaker, Lease, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Share,
    StoreExt,
};
use tollgate_tests::{Connection, Failing};

use crate::service::request_quotas::CountsSupports;

thread_local! {
    /// Where this thread panicked last.
    static FILE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The file in which this panics.
fn file_of(panicking: impl FnOnce() + UnwindSafe) -> String {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map(|at| at.file().to_owned());
            FILE.set(file.unwrap_or_default());
            before(panic);
        }));
    });
    assert!(panic::catch_unwind(panicking).is_err(), "nothing was refused");
    FILE.take()
}

/// Drops what was made, which may be `Copy`.
fn make<T>(_: T) {}

fn failing() -> Failing {
    Failing::new(MemoryStore::new(), Connection::Works)
}

type Refused = Box<dyn FnOnce() + UnwindSafe>;

#[test]
fn a_refused_argument_is_reported_at_the_line_of_the_caller() {
    let per_second = || Quota::per_second(1);
    let rule = move |name| Policy::new(name, per_second()).by(global());
    let refused: [(&str, Refused); 22] = [
        ("per_second", Box::new(|| make(Quota::per_second(0)))),
        ("per_minute", Box::new(|| make(Quota::per_minute(0)))),
        ("per_hour", Box::new(|| make(Quota::per_hour(0)))),
        ("per_day", Box::new(|| make(Quota::per_day(0)))),
        ("new of Quota", Box::new(|| make(Quota::new(1, Duration::ZERO)))),
        ("burst", Box::new(move || make(per_second().burst(0)))),
        ("new of Policy", Box::new(move || make(Policy::new("", per_second())))),
        (
            "with_algorithm",
            Box::new(move || {
                make(Policy::new("a", per_second().burst(2)).with_algorithm(Algorithm::SLIDING_LOG));
            }),
        ),
        ("Share", Box::new(|| make(Share::new(2, 1)))),
        ("new of Limiter", Box::new(|| make(Limiter::new([])))),
        ("new of RateLimitLayer", Box::new(move || make(RateLimitLayer::new([rule("a"), rule("a")])))),
        (
            "store",
            Box::new(move || {
                let count = Arc::default();
                let store = CountsSupports { store: MemoryStore::new(), of: "", count, least: 20 };
                make(RateLimitLayer::per_ip(per_second()).store(store));
            }),
        ),
        (
            "deadline_header",
            Box::new(move || make(RateLimitLayer::per_ip(per_second()).deadline_header("a b"))),
        ),
        ("header", Box::new(|| make(header("a b")))),
        ("cookie", Box::new(|| make(cookie("a b")))),
        ("from_header", Box::new(|| make(ClientIp::from_header("a b")))),
        ("trusting", Box::new(|| make(ClientIp::from_header("a").trusting(["everyone"])))),
        ("from_networks", Box::new(|| make(from_networks(PeerIp::new(), ["everyone"])))),
        (
            "tiers",
            Box::new(move || make(rule("a").tiers([("", per_second())], |_, _| Option::<String>::None))),
        ),
        ("at_most", Box::new(|| make(Lease::at_most(0)))),
        (
            "probe_after",
            Box::new(|| make(CircuitBreaker::default().probe_after(Duration::ZERO, Duration::ZERO))),
        ),
        ("timeout", Box::new(|| make(failing().timeout(Duration::ZERO)))),
    ];
    for (name, refused) in refused {
        assert_eq!(file_of(refused), file!(), "{name}");
    }
}
