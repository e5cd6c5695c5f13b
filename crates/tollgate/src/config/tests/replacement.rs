//! What a layer and an output see of the keys of a file.

use crate::config::{Registry, RuleFile};
use crate::layer::{RateLimitLayer, RuleChange};

/// A layer that follows the file says the same.
#[test]
fn a_replacement_compares_the_keys_that_files_say() {
    let rules = |by: &str| {
        let text = format!("[[rule]]\nname = \"0\"\nquota = \"5/s\"\nby = \"{by}\"");
        Registry::new().rules(&RuleFile::from_toml(&text).unwrap()).unwrap()
    };
    let layer = RateLimitLayer::new(rules("header:x-api-key | ip"));
    let of = |by: &str| layer.replace(rules(by)).unwrap().of("0");
    assert_eq!(of("header:X-Api-Key|ip"), None);
    assert_eq!(of("ip"), Some(RuleChange::StartsAgain));
    assert_eq!(of("ip"), None);
}

#[test]
fn keys_for_output_hide_what_callers_and_the_application_write() {
    use crate::config::{Registry, RuleConfig};
    use crate::extract::{Head, PeerAddr};
    let request = http::Request::get("/")
        .header("x-key", "sesame")
        .header("authorization", "Basic c2VzYW1lOg==")
        .header("cookie", "s=sesame")
        .header("x-many", "sesame")
        .header("x-many", "other")
        .header("x-empty", "")
        .extension(PeerAddr(([192, 0, 2, 1], 80).into()))
        .body(())
        .unwrap();
    let registry = Registry::new().key("user", |_: &Head<'_>| Some("sesame".into()));
    for (by, shown) in [
        ("header:x-key", Some("=hidden")),
        ("basic-user", Some("=hidden")),
        ("cookie:s", Some("=hidden")),
        ("user", Some("=hidden")),
        ("header:x-many", Some("*")),
        ("header:x-empty|ip", Some("1|@192.0.2.1")),
        ("header:x-key+ip|global", Some("0|(=hidden,@192.0.2.1)")),
        ("header:x-none|method", Some("1|=GET")),
        ("header:x-none", None),
    ] {
        let rule: RuleConfig = format!("a=5/s,key={by}").parse().unwrap();
        let key = registry.shown_key(&rule, &Head::from(&request)).unwrap();
        assert_eq!(key.map(|key| key.to_text()).as_deref(), shown, "{by}");
    }
}
