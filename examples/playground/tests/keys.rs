//! The keys of requests, and requests without a key.

use crate::server::Server;

#[test]
fn header_values_are_counted_separately() {
    let server = Server::with_rules(&["api=1/d,key=header:X-Api-Key"]);
    let get = |key| server.get_with("/", &[("x-api-key", key)]);
    assert_eq!((get("a").status, get("b").status), (200, 200));
    get("a").assert_refused_by(&["api"]);
    assert_eq!(get("A").status, 200, "values are compared byte for byte");
}

#[test]
fn cookie_values_are_counted_separately() {
    let server = Server::with_rules(&["api=1/d,key=cookie:session"]);
    let get = |cookies| server.get_with("/", &[("cookie", cookies)]);
    assert_eq!((get("session=1").status, get("x=1; session=2").status), (200, 200));
    get("session=1; x=3").assert_refused_by(&["api"]);
    assert_eq!(get("sessions=1").status, 400);
}

#[test]
fn spellings_of_one_bearer_token_are_counted_together() {
    let server = Server::with_rules(&["api=1/d,key=bearer"]);
    let get = |value| server.get_with("/", &[("authorization", value)]);
    assert_eq!((get("Bearer tok").status, get("Bearer other").status), (200, 200));
    for same in ["bearer tok", "Bearer  tok", "BEARER tok "] {
        get(same).assert_refused_by(&["api"]);
    }
    assert_eq!((get("Basic dG9rOg==").status, get("Bearer").status), (400, 400));
}

#[test]
fn passwords_of_one_basic_user_are_counted_together() {
    let server = Server::with_rules(&["api=1/d,key=basic-user"]);
    let get = |value| server.get_with("/", &[("authorization", value)]);
    // ada:1, bob:1 and ada:2.
    assert_eq!((get("Basic YWRhOjE=").status, get("Basic Ym9iOjE=").status), (200, 200));
    get("basic  YWRhOjI=").assert_refused_by(&["api"]);
    assert_eq!((get("Basic YWRh").status, get("Bearer tok").status), (400, 400));
}

/// Also behind a proxy, where the attacker and its victim have the same peer.
#[test]
fn a_planted_cookie_does_not_deny_its_victim() {
    let rules = ["--rule", "api=1/d,key=cookie:session"];
    let proxy = ["--trust", "127.0.0.1/32", "--client-ip-header", "x-forwarded-for"];
    let server = Server::playground(&[&rules[..], &proxy].concat());
    let get = |client, cookies| server.get_with("/", &[("x-forwarded-for", client), ("cookie", cookies)]);
    assert_eq!(get("203.0.113.66", "session=x; session=y").status, 200);
    get("203.0.113.66", "session=a; session=b").assert_refused_by(&["api"]);
    assert_eq!(get("203.0.113.1", "session=planted; session=real").status, 200);
}

#[test]
fn a_request_without_a_key_is_refused_and_not_charged() {
    let server = Server::with_rules(&["all=5/d,key=global", "user=5/d,key=header:x-user"]);
    for headers in [&[][..], &[("x-user", "")]] {
        let refused = server.get_with("/", headers);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert_eq!(refused.json()["status"], 400);
        assert!(refused.json()["detail"].as_str().unwrap().contains("\"user\""));
        assert_eq!(refused.header("retry-after"), None);
        assert_eq!(server.get_with("/me", headers).status, 400);
    }
    assert_eq!(server.get_with("/", &[("x-user", "ada")]).remaining("all"), 4);
}

#[test]
fn skip_drops_only_the_rule_without_a_key() {
    let rules = ["--rule", "all=3/d,key=global", "--rule", "user=1/d,key=header:x-user"];
    let server = Server::playground(&[&rules[..], &["--missing-key", "skip"]].concat());
    for left in [2, 1] {
        let response = server.get("/");
        assert_eq!((response.status, response.remaining("all")), (200, left));
        assert!(!response.header("ratelimit-policy").unwrap().contains("user"));
    }
    let ada = [("x-user", "ada")];
    assert_eq!(server.get_with("/", &ada).remaining("user"), 0);
    server.get_with("/", &ada).assert_refused_by(&["all", "user"]);
    server.get("/").assert_refused_by(&["all"]);
}

#[test]
fn share_counts_all_requests_without_a_key_together() {
    let server = Server::playground(&["--rule", "api=1/d,key=header:x-user", "--missing-key", "share"]);
    assert_eq!(server.get("/").status, 200);
    server.get("/").assert_refused_by(&["api"]);
    server.get_with("/", &[("x-user", "")]).assert_refused_by(&["api"]);
    for user in ["ada", "*", "global"] {
        assert_eq!(server.get_with("/", &[("x-user", user)]).status, 200, "{user} shares with those without");
    }
}

#[test]
fn a_composite_needs_all_its_parts() {
    let server = Server::with_rules(&["api=1/d,key=ip+header:a+header:b"]);
    let get = |a, b| server.get_with("/", &[("a", a), ("b", b)]);
    assert_eq!((get("1", "2").status, get("2", "1").status, get("12", "").status), (200, 200, 400));
    // The boundaries of the parts matter.
    assert_eq!((get("1", "23").status, get("12", "3").status), (200, 200));
    get("1", "2").assert_refused_by(&["api"]);
    assert_eq!(server.get_with("/", &[("a", "1")]).status, 400);
}

#[test]
fn alternatives_of_a_key_do_not_collide() {
    let server = Server::with_rules(&["api=1/d,key=header:x-user|cookie:user|ip"]);
    assert_eq!(server.get("/").status, 200);
    server.get("/").assert_refused_by(&["api"]);
    assert_eq!(server.get_with("/", &[("x-user", "127.0.0.1")]).status, 200);
    assert_eq!(server.get_with("/", &[("cookie", "user=127.0.0.1")]).status, 200);
    server.get_with("/", &[("cookie", "user=127.0.0.1")]).assert_refused_by(&["api"]);
    let both = [("x-user", "127.0.0.1"), ("cookie", "user=new")];
    server.get_with("/", &both).assert_refused_by(&["api"]);
}

#[test]
fn invented_paths_share_one_quota() {
    let server = Server::with_rules(&["api=2/d,key=path"]);
    assert_eq!((server.get("/nowhere").status, server.get("/elsewhere").status), (404, 404));
    server.get("/invented").assert_refused_by(&["api"]);
    server.get("/?nothing=1#here").header("ratelimit").unwrap();
    assert_eq!(server.get("/").status, 200);
    server.get("/").assert_refused_by(&["api"]);
    // One route, with different parameters.
    assert_eq!((server.transfer("1").status, server.transfer("01").status), (200, 200));
    server.transfer("001").assert_refused_by(&["api"]);
}
