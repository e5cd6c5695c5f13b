//! The keys of a file.

use http::Request;
use tollgate_core::Key;

use crate::config::{Registry, RuleConfig};
use crate::extract::Head;
use crate::reason::Reason;
use crate::rule::Rule;

fn rule(by: &str) -> Rule {
    let config: RuleConfig = format!("x=5/s,key={by}").parse().unwrap();
    let registry = Registry::new().key("user", |_: &Head<'_>| Some(Key::from("ada")));
    registry.rule(&config).unwrap()
}

fn key(by: &str, headers: &[(&'static str, &str)]) -> Option<Key> {
    let mut request = Request::new(());
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    rule(by).find(&Head::from(&request)).filter(|key| !key.is_empty())
}

#[test]
fn plus_needs_all_and_binds_tighter_than_bar() {
    let by = "header:a + header:b | header:c";
    let both = key(by, &[("a", "1"), ("b", "2"), ("c", "3")]).unwrap();
    assert_eq!(key("header:a+header:b|header:c", &[("a", "1"), ("b", "2")]), Some(both.clone()));
    let fallback = key(by, &[("a", "1"), ("c", "3")]).unwrap();
    assert_ne!(both, fallback);
    assert_eq!(key(by, &[("c", "3")]), Some(fallback));
    assert_eq!(key(by, &[("a", "1")]), None);
}

#[test]
fn many_parts_and_many_alternatives() {
    let all = [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5")];
    assert!(key("header:a+header:b+header:c+header:d+header:e", &all).is_some());
    assert!(key("header:a+header:b+header:c+header:d+header:e", &all[..4]).is_none());
    let any = "header:a|header:b|header:c|header:d|header:e";
    let keys: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| key(any, &[(name, "same")])).into();
    for (n, key) in keys.iter().enumerate() {
        assert!(key.is_some() && !keys[..n].contains(key), "alternative {n} poses as another");
    }
}

#[test]
fn a_single_part_has_the_key_of_its_extractor() {
    assert_eq!(key("header:a", &[("a", "1")]), Some(Key::from("1")));
    assert_eq!(key("cookie:s", &[("cookie", "s=1")]), Some(Key::from("1")));
    assert_eq!(key("global", &[]), Some(Key::global()));
    assert_eq!(key("method", &[]), Some(Key::from("GET")));
    assert_eq!(key("bearer", &[("authorization", "bearer  tok")]), Some(Key::from("tok")));
    assert_eq!(key("basic-user", &[("authorization", "Basic ZGVtbzo=")]), Some(Key::from("demo")));
    assert_eq!(key("user", &[]), Some(Key::from("ada")));
}

/// Otherwise a request gets 400, although the server provides no peer addresses.
#[test]
fn several_parts_say_that_the_server_provides_no_address() {
    let request = Request::get("/").header("a", "1").body(()).unwrap();
    for by in ["header:a + ip", "header:b | ip", "header:a + header:a + ip | header:b"] {
        assert_eq!(rule(by).why_missing(&Head::from(&request)), Reason::NoPeerAddress, "{by}");
    }
}

#[test]
fn what_is_no_key_is_refused() {
    for by in [
        "",
        "ip+",
        "|ip",
        "ip||ip",
        "IP",
        "header",
        "header:",
        "header:x y",
        "cookie",
        "cookie:",
        "cookie:a b",
        "ip:1",
        "Bearer",
        "bearer:x",
        "global:x",
        "path/x",
    ] {
        assert!(format!("x=5/s,key={by}").parse::<RuleConfig>().is_err(), "{by:?}");
    }
}

#[test]
#[should_panic(expected = "key \"ip\": choose another name, of a to z, 0 to 9, - and _")]
fn a_registry_cannot_replace_the_own_keys_of_a_file() {
    let _ = Registry::new().key("ip", |_: &Head<'_>| None);
}

#[test]
fn words() {
    let words = |text: &str| text.parse::<RuleConfig>().unwrap().in_words();
    assert_eq!(words("api=5/10s"), "5 per 10 seconds for each client address; at most 5 at once (gcra)");
    assert_eq!(
        words("x=1/d,algorithm=fixed-window,key=global"),
        "1 per day for all callers together; fixed-window"
    );
    assert_eq!(
        words("x=2/s,algorithm=leaky-bucket,max-wait=5s,key=header:x-key+method|ip"),
        "2 per second for each value of the header x-key and method, else client address; 1 at once, others delayed for at \
         most 5 seconds (leaky-bucket)"
    );
    assert_eq!(
        words("a,b=2,max-wait=5s,lease=3s,key=global"),
        "2 in flight for all callers together; others wait for at most 5 seconds (in-flight, lease of 3 seconds)"
    );
    let words = |fields: &str| {
        let file = format!("[[rule]]\nname = \"a\"\nby = \"global\"\n{fields}");
        crate::config::RuleFile::from_toml(&file).unwrap().rules()[0].in_words()
    };
    assert_eq!(
        words("in-flight = 2"),
        "2 in flight for all callers together; others are refused (in-flight, lease of 15 seconds)"
    );
    assert_eq!(
        words("in-flight = 2\nmax-wait = \"5s\"\nlease = \"3s\""),
        "2 in flight for all callers together; others wait for at most 5 seconds (in-flight, lease of 3 seconds)"
    );
    assert_eq!(
        words("quota = \"1/s\"\nwhen = { path = [\"/a\", \"/b/*\"], method = \"GET\" }"),
        "1 per second for all callers together; at most 1 at once (gcra); only of /a or /b/* by GET"
    );
    assert_eq!(
        words("quota = \"1/s\"\nmode = \"shadow\""),
        "1 per second for all callers together; at most 1 at once (gcra); in shadow: refuses nothing"
    );
    assert_eq!(
        words("quota = \"1/d\"\nalgorithm = \"fixed-window\"\nblock = { after = 20, for = \"15m\" }"),
        "1 per day for all callers together; fixed-window; after 20 denials within 1 day blocked for 15 minutes"
    );
}
