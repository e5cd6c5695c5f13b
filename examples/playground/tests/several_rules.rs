//! Rules that are decided together, and routes outside the layer.

use std::thread::sleep;

use crate::server::Server;

#[test]
fn a_refused_request_charges_no_rule() {
    let server = Server::with_rules(&["burst=3/12s", "daily=5/d"]);
    for left in [4, 3, 2] {
        let response = server.get("/");
        assert_eq!((response.status, response.remaining("daily")), (200, left));
    }
    let refused = server.get("/");
    refused.assert_refused_by(&["burst"]);
    assert_eq!((refused.remaining("burst"), refused.remaining("daily")), (0, 2));
    server.get("/").assert_refused_by(&["burst"]);
    assert_eq!(server.me("daily", "remaining"), Some(2));

    sleep(refused.retry_after());
    let response = server.get("/");
    assert_eq!((response.status, response.remaining("daily")), (200, 1));
}

#[test]
fn a_refusal_by_the_last_rule_charges_no_earlier_rule() {
    let server = Server::with_rules(&["all=5/d,algorithm=fixed-window", "few=1/d,key=header:x-user"]);
    let get = |user| server.get_with("/", &[("x-user", user)]);
    assert_eq!(get("ada").remaining("all"), 4);
    for _ in 0..3 {
        let refused = get("ada");
        refused.assert_refused_by(&["few"]);
        assert_eq!(refused.remaining("all"), 4);
    }
    assert_eq!(get("bob").remaining("all"), 3);
}

#[test]
fn a_refusal_names_all_denying_rules_and_the_longest_wait() {
    let server = Server::with_rules(&["hour=1/h", "day=1/d"]);
    assert_eq!(server.get("/").status, 200);
    let refused = server.get("/");
    refused.assert_refused_by(&["hour", "day"]);
    assert_eq!(refused.retry_after().as_secs(), refused.field("ratelimit", "day", "t"));
    assert!(refused.retry_after().as_secs() > 3_600);
}

#[test]
fn me_charges_nothing() {
    let server = Server::with_rules(&["api=2/d"]);
    for _ in 0..10 {
        let me = server.get("/me");
        assert_eq!(
            (me.status, me.json()),
            (
                200,
                serde_json::json!({"policies": [{
                    "name": "api", "algorithm": "gcra",
                    "limit": 2, "capacity": 2, "remaining": 2, "reset_after": 0
                }]})
            )
        );
    }
    assert_eq!((server.get("/").status, server.get("/").status), (200, 200));
    let refused = server.get("/");
    assert_eq!(server.get("/me").status, 200, "a caller without quota may still ask");
    assert_eq!(server.me("api", "remaining"), Some(0));
    let told = server.me("api", "retry_after").unwrap();
    assert!(told > 0 && told <= refused.retry_after().as_secs());
    assert!(server.me("api", "reset_after").unwrap() > told);
}

#[test]
fn health_is_never_limited() {
    let server = Server::with_rules(&["api=1/d,key=global"]);
    assert_eq!(server.get("/").status, 200);
    server.get("/").assert_refused_by(&["api"]);
    for _ in 0..10 {
        let response = server.get("/health");
        assert_eq!((response.status, response.header("ratelimit")), (200, None));
    }
}

#[test]
fn the_banner_lists_the_limits_and_commands_to_try() {
    let mut server =
        Server::with_rules(&["burst=3/s", "user=10/m,algorithm=sliding-window,key=header:x-api-key"]);
    let said = server.says_until("http://");
    assert!(said.contains("burst: 3 per second for each client address; at most 3 at once (gcra)"), "{said}");
    assert!(
        said.contains("user: 10 per minute for each value of the header x-api-key; sliding-window"),
        "{said}"
    );
    let curls: Vec<_> = said.lines().filter(|line| line.trim().starts_with("curl -i ")).collect();
    assert_eq!(curls.len(), 2, "{said}");
    for curl in curls {
        assert!(curl.contains(&format!("http://{}/", server.address())), "{curl}");
        assert!(curl.contains("-H 'x-api-key: demo'"), "{curl}");
    }
    let grpcurl = format!("-H 'x-api-key: demo' {} helloworld.Greeter/SayHello\n", server.address());
    assert!(said.contains(&grpcurl), "{said}");
    for route in ["POST /chat/100/37", "POST /stream/20/500", "POST /login"] {
        assert!(said.contains(route), "{said}");
    }
}

#[test]
fn the_banner_has_commands_for_the_rules_tokens_and_login() {
    let mut server = Server::with_rules(&["tokens=50/m,key=header:x-api-key", "login=5/h"]);
    let said = server.says_until("http://");
    let url = format!("http://{}", server.address());
    for command in [
        format!("curl -i -H 'x-api-key: demo' -X POST {url}/chat/50/17\n"),
        format!("curl -N -H 'x-api-key: demo' -X POST {url}/stream/17/500\n"),
        format!("curl -i -H 'x-api-key: demo' -d 'user=ada&password=open sesame' {url}/login\n"),
    ] {
        assert!(said.contains(&command), "{said}");
    }
    assert!(said.contains("POST /chat and /stream reserve an estimate and settle it\n"), "{said}");
    assert!(said.contains("only failures of POST /login count\n") && !said.contains("Add --rule"), "{said}");
}
