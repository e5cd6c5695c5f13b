//! The limits of four kinds of servers that had limiters of their own, written with tollgate.

mod framework;
mod llm_gateway;
mod mail;
mod sign_on;

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::routing::get;
use tokio::task::JoinSet;
use tollgate::{MemoryStore, Quota};
use tollgate_tests::{Answer, Client, clock, serve, store, timed};

use llm_gateway::Quotas;
use mail::{Mail, Reply};

async fn post(address: SocketAddr, path: &str, fields: &[&str], body: &str) -> Answer {
    let mut client = Client::connect(address).await;
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let length = body.len();
    let request =
        format!("POST {path} HTTP/1.1\r\nhost: test\r\n{fields}content-length: {length}\r\n\r\n{body}");
    client.send(request).await;
    client.answer_to("POST").await
}

/// Asks for 30 tokens and takes 10, under these quotas.
async fn gateway(quotas: Quotas) -> (SocketAddr, MemoryStore) {
    let store = store(&clock());
    (serve(llm_gateway::app(quotas, store.clone(), |_| 10)).await, store)
}

const AMPLE: Quotas = Quotas {
    requests: Quota::per_minute(1_000),
    tokens: Quota::per_minute(100_000),
    team_tokens: Quota::per_day(1_000_000),
    model: Quota::per_second(1_000),
};

async fn prompt(address: SocketAddr, key: &str, team: &str) -> Answer {
    let token = format!("authorization: Bearer {team}.{key}");
    post(address, "/v1/completions", &[&token], r#"{"model":"m","prompt":"12345678","max_tokens":28}"#).await
}

#[tokio::test]
async fn a_gateway_charges_an_estimate_and_gives_the_rest_back() {
    let (address, _) = gateway(Quotas { tokens: Quota::per_minute(100), ..AMPLE }).await;
    // 10 stay charged of each, and 30 must be free for the next.
    for n in 0..8 {
        let answer = prompt(address, "ada", "acme").await;
        assert_eq!((answer.status, &*answer.body), (200, "10 tokens"), "{n}");
    }
    let answer = prompt(address, "ada", "acme").await;
    assert_eq!((answer.status, answer.field("retry-after")), (429, Some("6")));
    assert!(answer.body.contains("\"violated-policies\":[\"tokens\"]"), "{answer:?}");
    assert_eq!(prompt(address, "bob", "acme").await.status, 200);
    assert_eq!(post(address, "/v1/completions", &[], "{}").await.status, 401);
}

#[tokio::test]
async fn a_gateway_never_grants_more_tokens_than_a_team_has() {
    let (address, _) = gateway(Quotas { team_tokens: Quota::per_day(95), ..AMPLE }).await;
    let mut calls = JoinSet::new();
    for n in 0..40 {
        calls.spawn(async move { prompt(address, &format!("key-{n}"), "acme").await.status });
    }
    let passed = calls.join_all().await.iter().filter(|status| **status == 200).count();
    // Three estimates fit at once. One more request fits for each that gave back.
    assert!((3..=7).contains(&passed), "{passed}");
}

#[tokio::test]
async fn a_gateway_limits_requests_and_models_too() {
    let (address, _) = gateway(Quotas { requests: Quota::per_minute(2), ..AMPLE }).await;
    let statuses = [
        prompt(address, "ada", "a").await,
        prompt(address, "ada", "b").await,
        prompt(address, "ada", "c").await,
    ];
    assert_eq!(statuses.map(|answer| answer.status), [200, 200, 429]);
    let (address, _) = gateway(Quotas { model: Quota::per_minute(1), ..AMPLE }).await;
    let statuses = [prompt(address, "ada", "a").await, prompt(address, "bob", "b").await];
    assert_eq!(statuses.map(|answer| answer.status), [200, 429]);
    let fields = ["authorization: bearer  a.ada"];
    for malformed in ["", "[]", r#"{"model":1,"prompt":""}"#] {
        assert_eq!(post(address, "/v1/completions", &fields, malformed).await.status, 400, "{malformed}");
    }
}

#[tokio::test]
async fn a_sign_on_server_blocks_guessers_and_lets_others_in() {
    let address = serve(sign_on::app(store(&clock()))).await;
    let log_in =
        async |name: &str, password| post(address, &format!("/login/{name}"), &[], password).await.status;
    for _ in 0..8 {
        assert_eq!(log_in("ada", "right").await, 200);
    }
    let mut guesses = Vec::new();
    for _ in 0..7 {
        guesses.push(log_in("bob", "wrong").await);
    }
    assert_eq!(guesses, [401, 401, 401, 401, 401, 429, 429]);
    assert_eq!((log_in("bob", "right").await, log_in("ada", "right").await), (429, 200));
    assert_eq!(post(address, "/reset/bob", &[], "").await.status, 200);
    assert_eq!(log_in("bob", "right").await, 200);
    // 30 of this address, whatever the names.
    let mut more = Vec::new();
    for n in 0..15 {
        more.push(log_in(&format!("user-{n}"), "wrong").await);
    }
    // 18 were before.
    assert_eq!(more.iter().filter(|status| **status == 401).count(), 12, "{more:?}");
    assert_eq!(post(address, "/token", &[], "").await.status, 400, "a client has a name");
    let basic = ["authorization: Basic YXBwOnNlY3JldA=="];
    assert_eq!(post(address, "/token", &basic, "").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_mail_server_counts_messages_recipients_and_domains_together() {
    let mail = Mail::new(store(&clock()));
    for _ in 0..24 {
        mail.submit("ada@example.com", 4).await.unwrap();
    }
    // A message for five is refused for its recipients, and is no message then.
    let refused = mail.submit("ada@example.com", 5).await.unwrap_err();
    assert_eq!(
        (refused.0, refused.1.starts_with("4.7.1 quota exceeded: recipients, try again in ")),
        (451, true)
    );
    mail.submit("ada@example.com", 4).await.unwrap();
    let refused = mail.submit("ada@example.com", 1).await.unwrap_err();
    assert!(refused.1.contains("messages") && refused.1.contains("recipients"), "{refused:?}");
    assert_eq!(
        mail.submit("bob@EXAMPLE.com", 101).await,
        Err(Reply(552, "5.5.3 too many recipients".to_owned()))
    );
    assert_eq!(mail.submit("nobody", 1).await.unwrap_err().0, 553);
    let peer = IpAddr::from([203, 0, 113, 7]);
    for _ in 0..20 {
        mail.connect(peer).await.unwrap();
    }
    assert_eq!(mail.connect(peer).await.unwrap_err().0, 451);
}

#[tokio::test]
async fn a_mail_server_paces_what_it_delivers_to_a_host() {
    let mail = Mail::new(MemoryStore::new());
    let deliver = async || {
        for _ in 0..11 {
            mail.deliver("mx.example.com").await.unwrap();
        }
    };
    let ((), took) = timed(deliver()).await;
    // Ten intervals of 22 ms.
    assert!(took >= std::time::Duration::from_millis(219), "{took:?}");
}

#[tokio::test]
async fn a_framework_reads_its_limits_from_a_file() {
    let file = "\n  log-ins 2/60 ip /login\n  all 5/60,burst=5 all\n  users 3/60 user /api\n";
    let layer = framework::from_file(file, store(&clock())).unwrap();
    let routes = ["/login", "/api/a", "/api/b"]
        .into_iter()
        .fold(Router::new(), |router, path| router.route(path, get(async || "")));
    let address = serve(routes.layer(layer)).await;
    let mut client = Client::connect(address).await;
    let mut statuses = Vec::new();
    for (path, user) in [
        ("/login", "x-user: a"),
        ("/login", "x-user: b"),
        ("/login", "x-user: c"),
        ("/api/a", "x-user: a"),
        ("/api/b", "x-user: a"),
        ("/api/a", "x-user: a"),
        ("/api/a", "x-user: b"),
    ] {
        statuses.push(client.get(path, &[user]).await.status);
    }
    // The third log-in is charged to no rule; the last request is one too many for all.
    assert_eq!(statuses, [200, 200, 429, 200, 200, 200, 429]);
}

#[test]
fn a_mistake_in_the_file_of_a_framework_names_its_line_and_value() {
    for (file, error) in [
        ("a 1/60", r#"line 1: "a 1/60" must be NAME LIMIT/SECONDS KEY [PATH-PREFIX]"#),
        ("a 1/60 ip\nb 0/60 ip", "line 2: a quota's limit must be at least 1"),
        ("a 5 ip", r#"line 1: the quota "5" must be LIMIT/SECONDS or LIMIT/SECONDS,burst=N"#),
        ("a 5/60 name", r#"line 1: the key "name" must be ip, ip+route, user, all or header:NAME"#),
        (
            "a 5/60 header:a\u{e9}b",
            "line 1: the key \"header:a\u{e9}b\" must be ip, ip+route, user, all or header:NAME",
        ),
        ("a 5/60 ip\na 6/60 ip", "two rules have the name \"a\""),
        ("", "no rules: nothing would be limited"),
    ] {
        let found = framework::from_file(file, MemoryStore::new()).map(drop).unwrap_err();
        assert!(found.contains(error), "{file:?}: {found}");
    }
}
