//! What the rules of a file do with requests.

use std::time::Duration;

use http::Request;
use tollgate_core::{Key, Quota};

use crate::config::{Registry, RuleFile};
use crate::extract::{ClientIp, Head, PeerAddr};
use crate::plan::Plan;
use crate::rule::Rule;

fn rule(registry: &Registry, fields: &str) -> Rule {
    let file = RuleFile::from_toml(&format!("[[rule]]\nname = \"a\"\nby = \"global\"\n{fields}")).unwrap();
    registry.rules(&file).unwrap().remove(0)
}

fn applies(when: &str, request: http::request::Builder) -> bool {
    let rule = rule(&Registry::new(), &format!("quota = \"5/s\"\nwhen = {when}"));
    !rule.is_exempt(&Head::from(&request.body(()).unwrap()))
}

#[test]
fn a_path_is_compared_as_received_and_without_its_query() {
    for (pattern, uri, is_met) in [
        ("/api/*", "/api/users", true),
        ("/api/*", "/api/", true),
        ("/api/*", "/api", false),
        ("/api/*", "//api/users", false),
        ("/api/*", "/api//users", true),
        ("/api/*", "/api%2Fusers", false),
        ("/api/*", "/%61pi/users", false),
        ("/api/*", "/API/users", false),
        ("/api/*", "/x?/api/users", false),
        ("/api/*", "/api/users?x=/y", true),
        ("/api/*", "http://example.com/api/users", true),
        ("/a%2Fb", "/a%2Fb", true),
        ("/a%2Fb", "/a%2fb", false),
        ("/a%2Fb", "/a/b", false),
        ("/login", "/login", true),
        ("/login", "/login?next=/", true),
        ("/login", "/login/", false),
        ("/login", "/logins", false),
        ("/*", "/", true),
        ("/*", "*", false),
    ] {
        assert_eq!(
            applies(&format!("{{ path = \"{pattern}\" }}"), Request::get(uri)),
            is_met,
            "{pattern} {uri}"
        );
    }
}

#[test]
fn all_conditions_must_be_met_and_of_a_list_one() {
    let when = "{ path = [\"/a\", \"/b\"], method = [\"GET\", \"POST\"], header = \"x-beta\" }";
    let request = |method: &str, uri: &str| Request::builder().method(method).uri(uri).header("X-Beta", "");
    assert!(applies(when, request("GET", "/a")) && applies(when, request("POST", "/b")));
    assert!(!applies(when, request("PUT", "/a")) && !applies(when, request("GET", "/c")));
    assert!(!applies(when, Request::get("/a")));
    assert!(applies("{}", Request::get("/any")), "a rule without a condition applies to every request");
}

/// So a request costs nothing for the thousands of rules of other paths.
#[test]
fn a_rule_is_looked_at_only_on_the_paths_of_its_condition() {
    let paths = |when: &str| {
        let rule = rule(&Registry::new(), &format!("quota = \"5/s\"\nwhen = {when}"));
        rule.paths().map(|paths| paths.map(str::to_owned).collect::<Vec<_>>())
    };
    let two = paths("{ path = [\"/a\", \"/b/*\"], method = \"GET\" }");
    assert_eq!(two, Some(vec!["/a".to_owned(), "/b/*".to_owned()]));
    assert_eq!(paths("{ method = \"GET\" }"), None);
}

#[test]
fn listed_networks_and_preflights_are_exempt() {
    let request = |peer: &str, forwarded_for: &str| {
        let peer = PeerAddr((peer.parse::<std::net::IpAddr>().unwrap(), 4_000).into());
        Request::get("/").extension(peer).header("x-forwarded-for", forwarded_for).body(()).unwrap()
    };
    let fields = "quota = \"5/s\"\nexempt = [\"192.0.2.0/24\", \"cors-preflight\", \"health\"]";
    let registry = Registry::new().exempt("health", |head: &Head<'_>| head.uri().path() == "/health");
    let is_exempt = |registry: &Registry, request| rule(registry, fields).is_exempt(&Head::from(&request));
    assert!(is_exempt(&registry, request("192.0.2.1", "")));
    assert!(!is_exempt(&registry, request("10.0.0.1", "192.0.2.1")));
    assert!(is_exempt(&registry, Request::get("/health").body(()).unwrap()));
    let preflight =
        Request::options("/").header("origin", "x").header("access-control-request-method", "PUT");
    assert!(is_exempt(&registry, preflight.body(()).unwrap()));
    let registry = registry.client_ip(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]));
    assert!(is_exempt(&registry, request("10.0.0.1", "192.0.2.1")));
}

#[test]
fn costs_are_numbers_or_those_of_the_registry() {
    let registry = Registry::new().cost("kib", |head| head.uri().path().len() as u64);
    let cost = |cost: &str| {
        let rule = rule(&registry, &format!("quota = \"50/s\"\n{cost}"));
        let request = Request::get("/four").body(()).unwrap();
        rule.cost_of(&Head::from(&request), rule.policy())
    };
    assert_eq!((cost(""), cost("cost = 7"), cost("cost = \"kib\"")), (1, 7, 5));
    assert_eq!(cost("reserve = \"kib\"\nreserve-at-most = \"1/25\""), 2);
}

#[test]
fn tiers_and_classes_are_chosen_by_the_registry() {
    let class = |head: &Head<'_>, _: &Key| Some(head.headers().get("x-class")?.to_str().ok()?.to_owned());
    let registry = Registry::new().class("class", class);
    let tiers = "tiers = { by = \"class\", quotas = { pro = \"500/s\" } }\n";
    let rule = rule(
        &registry,
        &format!("quota = \"50/s\"\n{tiers}leaving = {{ by = \"class\", units = {{ batch = 5 }} }}"),
    );
    let plan = Plan::try_new([rule]).unwrap();
    let capacity = |class: &str| {
        let request = Request::get("/").header("x-class", class).body(()).unwrap();
        let asks = plan.ask(&Head::from(&request), |_| true).unwrap();
        plan.policy(&asks[0].policy).capacity()
    };
    assert_eq!((capacity("pro"), capacity("batch"), capacity("other")), (500, 45, 50));
}

#[test]
fn a_quota_of_the_registry_decides() {
    let registry = Registry::new().quota("row", |_: &Head<'_>, _: &Key| Quota::per_second(7));
    let plan = Plan::try_new([rule(&registry, "quota = \"5/s\"\nquota-by = \"row\"")]).unwrap();
    let request = Request::get("/").body(()).unwrap();
    let asks = plan.ask(&Head::from(&request), |_| true).unwrap();
    assert_eq!(plan.policy(&asks[0].policy).capacity(), 7);
}

#[test]
fn a_rule_of_slots_has_the_times_of_its_file() {
    let fields = "in-flight = 1\nmax-wait = \"5s\"\nheld-at-most = \"2min\"";
    let rule = rule(&Registry::new(), fields);
    assert_eq!((rule.wait(), rule.held()), (Duration::from_secs(5), Some(Duration::from_secs(120))));
}

#[test]
fn a_rule_on_get_includes_head() {
    let when = "{ method = \"GET\" }";
    assert!(applies(when, Request::get("/")) && applies(when, Request::head("/")));
    assert!(!applies(when, Request::post("/")) && !applies("{ method = \"HEAD\" }", Request::get("/")));
}

#[cfg(feature = "axum")]
#[test]
fn a_path_in_a_nested_router_is_the_whole_path() {
    let original = axum::extract::OriginalUri("/api/users".parse().unwrap());
    let nested = || Request::get("/users").extension(original.clone());
    assert!(applies("{ path = \"/api/*\" }", nested()) && !applies("{ path = \"/users\" }", nested()));
}

/// Over HTTP/1.1 it is a `GET`.
#[test]
fn a_rule_on_get_includes_websockets_over_http_2() {
    let connect = |uri: &str| http::Request::builder().method("CONNECT").uri(uri);
    for (method, extended, tunnel) in [("GET", true, false), ("CONNECT", true, true), ("POST", false, false)]
    {
        let when = format!("{{ method = \"{method}\" }}");
        assert_eq!(applies(&when, connect("https://a.example/chat")), extended, "{method}");
        assert_eq!(applies(&when, connect("a.example:443")), tunnel, "{method}");
    }
    assert!(applies("{ path = \"/chat\", method = [\"PUT\", \"GET\"] }", connect("https://a.example/chat")));
    assert!(!applies("{ path = \"/other\", method = \"GET\" }", connect("https://a.example/chat")));
}

/// Handlers that name a rule would panic.
#[test]
fn a_file_without_a_required_rule_is_refused() {
    let registry = Registry::new().require("api", []).require("log-ins", ["block"]);
    let error = |text: &str| {
        let file = RuleFile::from_toml(text).unwrap();
        registry.rules(&file).map(drop).map_err(|error| error.to_string()).err()
    };
    let rule = |name: &str, more: &str| {
        format!("[[rule]]\nname = \"{name}\"\nquota = \"5/s\"\nby = \"ip\"\n{more}\n")
    };
    let (api, block) = (rule("api", ""), "block = { after = 3, for = \"15m\" }");
    assert_eq!(error(&(api.clone() + &rule("log-ins", block))), None);
    for (text, reason) in [
        (rule("other", ""), "rule \"api\": missing: the application needs a rule with this name"),
        (api.clone(), "rule \"log-ins\": missing: the application needs a rule with this name"),
        (
            api.clone() + &rule("log-ins", ""),
            "line 6, rule \"log-ins\", block: missing: the application needs it",
        ),
        (
            api + &rule("log-ins", &format!("{block}\nmode = \"shadow\"")),
            "line 11, rule \"log-ins\", mode: the application needs this rule, so it cannot be in shadow",
        ),
    ] {
        assert_eq!(error(&text).as_deref(), Some(reason));
    }
}
