//! The keys of a file.

use http::Request;
use tollgate_core::Key;

use crate::config::{KeyExpression, KeyPart, Registry, RuleConfig};
use crate::errors::Reason;
use crate::extract::Head;
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

/// Such as of an administrator's form.
#[test]
fn a_key_that_code_has_made_is_checked_too() {
    let mut config: RuleConfig = "x=5/s,key=ip".parse().unwrap();
    for name in ["my session", ""] {
        config.by = KeyExpression(vec![vec![KeyPart::Cookie(name.to_owned())]]);
        let error = Registry::new().rule(&config).unwrap_err().to_string();
        assert!(error.contains(&format!("{name:?} is not the name of a cookie")), "{error}");
    }
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
