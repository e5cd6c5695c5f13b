//! What a layer and an output see of the rules of a file.

use std::time::Duration;

use serde_json::json;
use tollgate_core::{Policy, Quota};

use crate::config::{Registry, RuleFile};
use crate::extract::{Head, PeerIp, global};
use crate::layer::{RateLimitLayer, RuleChange};
use crate::rule::{PolicyExt, Rule};

fn rules(text: &str) -> Vec<Rule> {
    Registry::new().rules(&RuleFile::from_toml(text).unwrap()).unwrap()
}

/// A layer that follows the file says the same.
#[test]
fn a_replacement_compares_the_keys_that_files_say() {
    let rules = |by: &str| rules(&format!("[[rule]]\nname = \"0\"\nquota = \"5/s\"\nby = \"{by}\""));
    let layer = RateLimitLayer::new(rules("header:x-api-key | ip"));
    let of = |by: &str| layer.replace(rules(by)).unwrap().of("0");
    assert_eq!(of("header:X-Api-Key|ip"), None);
    assert_eq!(of("ip"), Some(RuleChange::StartsAgain));
    assert_eq!(of("ip"), None);
}

#[test]
fn a_replacement_names_rules_of_which_only_other_fields_change() {
    let rules = |more: &str| rules(&format!("[[rule]]\nname = \"0\"\nquota = \"5/s\"\nby = \"ip\"\n{more}"));
    let layer = RateLimitLayer::new(rules(""));
    for more in [
        "cost = 2",
        "cost = 3",
        "exempt = \"cors-preflight\"",
        "exempt = \"10.0.0.0/8\"",
        "missing-key = \"skip\"",
        "when = { path = \"/a\" }",
        "without-fields = true",
    ] {
        assert_eq!(layer.replace(rules(more)).unwrap().of("0"), Some(RuleChange::Otherwise), "{more}");
        assert_eq!(
            layer.replace(rules(more)).unwrap().to_string().split_once(": ").unwrap().1,
            "no rule changed"
        );
    }
}

#[test]
fn rules_in_force_have_the_fields_of_their_file() {
    let text = r#"
        [[rule]]
        name = "api"
        quota = "100/min burst 20"
        by = "header:x-api-key | ip"
        when = { path = "/api/*" }
        exempt = ["10.0.0.0/8"]
        tiers = { by = "plan", quotas = { pro = "600/min" } }

        [[rule]]
        name = "canary"
        quota = "5/s"
        by = "ip"
        mode = "shadow"
    "#;
    let file = RuleFile::from_toml(text).unwrap();
    let registry = Registry::new().class("plan", |_, _| None::<&str>);
    let layer = RateLimitLayer::new(registry.rules(&file).unwrap());
    let in_force = serde_json::to_value(layer.rules_in_force()).unwrap();
    assert_eq!((&in_force["version"], &in_force["enabled"]), (&json!(1), &json!(true)));
    let again = json!({ "rule": in_force["rules"] }).to_string();
    assert_eq!(RuleFile::from_json(&again), Ok(file));

    layer.replace(Policy::in_flight("exports", 20).by(PeerIp::new())).unwrap();
    layer.set_enabled(false);
    assert_eq!(
        serde_json::to_string(&layer.rules_in_force()).unwrap(),
        r#"{"version":3,"enabled":false,"rules":[{"name":"exports","in-flight":20}]}"#
    );
}

#[tokio::test]
async fn rules_in_force_count_slots_in_use_and_blocks() {
    let rule = Policy::new("logins", Quota::per_hour(1)).block_after(2, Duration::from_secs(60)).by(global());
    let layer = RateLimitLayer::new([Policy::in_flight("exports", 2).by(global()), rule]);
    let counts = || {
        let in_force = serde_json::to_value(layer.rules_in_force()).unwrap();
        (in_force["slots_held"].clone(), in_force["blocks_started"].clone())
    };
    let (limiter, request) = (layer.limiter(), http::Request::new(()));
    let permit = limiter.check(&Head::from(&request)).await.unwrap();
    assert_eq!(counts(), (json!({ "exports": 1 }), json!(null)));
    drop(permit);
    assert_eq!(counts(), (json!(null), json!(null)));
    for _ in 0..3 {
        assert!(limiter.check(&Head::from(&request)).await.is_err());
    }
    assert_eq!(counts(), (json!(null), json!({ "logins": 1 })));
}

#[test]
fn keys_for_output_hide_what_callers_and_the_application_write() {
    use crate::config::{Registry, RuleConfig};
    use crate::extract::PeerAddr;
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
