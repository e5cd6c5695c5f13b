//! `--rules`: rules from a file, which the server follows.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::arguments::complaint;
use crate::dashboard::{event_with, open};
use crate::metrics::Watched;
use crate::server::{Server, wait_until};

/// A file of rules in a directory of its own.
struct RulesFile {
    path: PathBuf,
    _directory: TempDir,
}

impl RulesFile {
    fn new(name: &str, text: &str) -> RulesFile {
        let directory = TempDir::new().unwrap();
        let file = RulesFile { path: directory.path().join(name), _directory: directory };
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }

    fn options(&self) -> [&str; 2] {
        ["--rules", self.path.to_str().unwrap()]
    }

    /// A series of this file.
    fn series(&self, name: &str) -> String {
        format!("{name}{{file=\"{}\"}}", self.path.display())
    }
}

/// A rule by the user, with the header that the page and the banner then name.
fn rule(name: &str, quota: &str) -> String {
    format!("[[rule]]\nname = {name:?}\nquota = {quota:?}\nby = \"header:x-user\"\n")
}

fn rules_file(server: &Server, condition: impl Fn(&Value) -> bool) -> Value {
    event_with(server, |event| condition(&event["rules_file"]))["rules_file"].take()
}

#[test]
fn an_edit_of_the_file_holds_and_a_mistake_changes_nothing() {
    let file = RulesFile::new("rules.toml", &rule("api", "2/d"));
    let watched = Watched::start(&file.options());
    let ask = |user: &str| watched.server.get_with("/", &[("x-user", user)]);
    let limit = |user: &str| ask(user).header("ratelimit-policy").unwrap().to_owned();
    assert_eq!([(); 3].map(|()| ask("ada").status), [200, 200, 429]);
    let shown = rules_file(&watched.server, |_| true);
    assert_eq!((&shown["version"], &shown["error"]), (&json!(1), &Value::Null));
    assert!(shown["path"].as_str().unwrap().ends_with("rules.toml"), "{shown}");

    file.write(&rule("api", "50/d"));
    wait_until(|| limit("bob").contains("q=50"));
    let version = |metrics: &Watched| metrics.scrape()[&file.series("tollgate_rules_version")];
    let error = |metrics: &Watched| metrics.scrape()[&file.series("tollgate_rules_error")];
    wait_until(|| version(&watched) == 2.0);
    let changed = rules_file(&watched.server, |file| file["version"] == 2);
    assert!(changed["since"].as_u64() > shown["since"].as_u64(), "{shown} {changed}");

    file.write(&rule("api", "50/fortnight"));
    let reason = "line 3, rule \"api\", quota: \"fortnight\" is not a time such as 10s, 500ms, 5min, h or d";
    let wrong = rules_file(&watched.server, |file| file["error"] != Value::Null);
    assert_eq!((&wrong["error"], &wrong["version"]), (&json!(reason), &json!(2)));
    wait_until(|| error(&watched) == 1.0);
    assert_eq!(version(&watched), 2.0);
    assert!(limit("bob").contains("q=50"));

    let rules = watched.server.get("/rules").json();
    assert_eq!(rules["in_force"]["rules"][0]["quota"], "50/d");
    assert_eq!((&rules["in_force"]["version"], &rules["file"]["error"]), (&json!(2), &json!(reason)));

    file.write(&rule("api", "60/d"));
    assert_eq!(rules_file(&watched.server, |file| file["version"] == 3)["error"], Value::Null);
    wait_until(|| error(&watched) == 0.0);
}

#[test]
fn the_page_shows_the_rules_of_the_file_and_its_mistake() {
    let file = RulesFile::new("rules.toml", &(rule("few", "3/d") + &rule("many", "100/d")));
    let server = Server::playground(&file.options());
    let mut page = open(&server);
    page.click("[data-requests='10']");
    page.wait_for(
        "document.querySelector('#result').textContent.startsWith('Sent 10: 3 allowed, 7 refused')",
    );
    assert!(page.text("#rules").contains("Version 1 of"), "{}", page.text("#rules"));

    let slots = "[[rule]]\nname = \"slots\"\nin-flight = 5\nby = \"global\"\n";
    file.write(&(rule("many", "200/d") + slots));
    let cards = "[...document.querySelectorAll('article')]";
    page.wait_for(&format!("{cards}.map(({{ dataset }}) => dataset.policy).join() === 'many,slots'"));
    page.wait_for("document.querySelector('article p').textContent.startsWith('200 per day for each')");
    let allowed = "document.querySelector('[data-policy=many] [data-outcome=allowed]').cells[2].textContent";
    assert_eq!(page.eval(allowed), "3", "a rule that stays keeps its counts");
    page.click("[data-requests='10']");
    page.wait_for("document.querySelector('#result').textContent.startsWith('Sent 10: 10 allowed')");
    page.wait_for(&format!("{allowed} === '13'"));
    page.wait_for("document.querySelector('#version').textContent === '2'");

    file.write("nothing");
    page.wait_for("document.querySelector('#mistake').textContent.includes('line 1: not TOML')");
    file.write(&rule("many", "200/d"));
    page.wait_for("document.querySelector('#mistake').textContent === ''");
    assert_eq!(page.logged().len(), 0, "{:?}", page.logged());

    let mut page = open(&Server::with_rules(&["api=2/d"]));
    assert_eq!(page.eval("document.querySelector('#rules').hidden"), true);
}

#[test]
fn rules_that_a_file_adds_show_their_keys() {
    let file =
        RulesFile::new("rules.json", r#"{ "rule": [{ "name": "api", "quota": "100/d", "by": "ip" }] }"#);
    let server = Server::playground(&file.options());
    assert_eq!(event_with(&server, |_| true)["blocked"], Value::Null);
    file.write(
        r#"{ "rule": [
            { "name": "slots", "in-flight": 3, "by": "header:x-user", "missing-key": "skip" },
            { "name": "few", "quota": "1/d", "by": "ip", "block": { "after": 2, "for": "1h" }, "when": { "path": "/" } }
        ] }"#,
    );
    event_with(&server, |event| event["blocked"] == json!([]));
    wait_until(|| server.get("/").body.contains("abnormal-usage-detected"));
    let event = event_with(&server, |event| event["blocked"].as_array().is_some_and(|keys| !keys.is_empty()));
    assert_eq!(
        (&event["blocked"][0]["policy"], &event["blocked"][0]["key"]),
        (&json!("few"), &json!("@127.0.0.1"))
    );
    std::thread::scope(|scope| {
        scope.spawn(|| server.get_with("/slow/3000", &[("x-user", "ada")]));
        event_with(&server, |event| {
            event["policies"][0]["slots"]["keys"] == json!([{ "key": "=ada", "in_use": 1 }])
        });
    });
}

#[test]
fn a_file_can_say_what_the_options_say() {
    let text = r#"
        [[rule]]
        name = "api"
        quota = "10/d"
        by = "ip"
        cost = "transfer"
        leaving = { by = "x-class", units = { batch = 8 } }
        when = { path = ["/", "/transfer/*"] }

        [[rule]]
        name = "tokens"
        quota = "100/d"
        by = "ip"
        reserve = "estimate"
        when = { path = "/chat/*" }

        [[rule]]
        name = "login"
        quota = "2/d"
        by = "ip"
        count-if = "failed"
        when = { path = "/login", method = "POST" }

        [[rule]]
        name = "failures"
        quota = "9/d"
        by = "ip"
        reserve = "one"
        exempt = "not-login"
    "#;
    let file = RulesFile::new("rules.toml", text);
    let server = Server::playground(&file.options());
    let batch = || server.get_with("/", &[("x-class", "batch")]).status;
    assert_eq!([batch(), batch(), batch()], [200, 200, 429]);
    assert_eq!((server.transfer("7").status, server.transfer("2").status), (200, 429));
    let used = server.connect().request("POST", "/chat/50/37", &[]).json();
    assert_eq!((&used["reserved"], &used["charged"]), (&json!(50), &json!(37)));
    let log_in = |form: &str| server.connect().post("/login", form).status;
    let (right, wrong) = ("user=ada&password=open sesame", "user=ada&password=guess");
    assert_eq!([right, wrong, right, wrong, right].map(log_in), [200, 401, 200, 401, 429]);
    assert_eq!(server.me("failures", "remaining"), Some(5));
}

#[test]
fn a_request_brings_its_limit_as_a_row_would_say_it() {
    let file = RulesFile::new(
        "rules.toml",
        &(rule("api", "2/d") + "algorithm = \"fixed-window\"\nquota-by = \"of-header\"\n"),
    );
    let server = Server::playground(&file.options());
    let get = |limit| server.get_with("/", &[("x-user", "ada"), ("x-limit", limit)]).status;
    assert_eq!([get("unlimited"), get("unlimited"), get("unlimited"), get("none")], [200, 200, 200, 403]);
    assert_eq!(
        [get("own"), get("unreadable"), get("own"), get("3/d"), get("3/d")],
        [200, 500, 200, 200, 429]
    );
}

#[test]
fn a_rule_in_shadow_refuses_nothing_and_the_page_shows_what_it_would() {
    let shadow = rule("stricter", "3/d") + "mode = \"shadow\"\n";
    let file = RulesFile::new("rules.toml", &(rule("api", "9/d") + &shadow));
    let server = Server::playground(&file.options());
    let get = || server.get_with("/", &[("x-user", "ada")]).status;
    assert_eq!([get(), get(), get(), get(), get()], [200; 5]);
    let event = event_with(&server, |event| event["policies"][1]["outcomes"]["shadow-denied"]["total"] == 2);
    let [api, stricter] = [&event["policies"][0], &event["policies"][1]];
    assert!(stricter["rule"].as_str().unwrap().ends_with("; in shadow: refuses nothing"), "{stricter}");
    assert_eq!(
        (&stricter["outcomes"]["shadow-allowed"]["total"], &api["outcomes"]["allowed"]["total"]),
        (&json!(3), &json!(5))
    );
    file.write(&(rule("api", "9/d") + &rule("stricter", "3/d")));
    wait_until(|| get() == 429);
    let mut page = open(&server);
    page.wait_for("document.querySelectorAll('tr[data-outcome=shadow-denied]')[1].innerText.includes('would be refused')");
    assert_eq!(page.logged().len(), 0, "{:?}", page.logged());
}

#[test]
fn the_banner_names_the_file_and_no_options_for_rules() {
    let file = RulesFile::new("rules.toml", &rule("api", "2/d"));
    let mut server = Server::playground(&file.options());
    let said = server.says_until("http://");
    assert!(
        said.contains("rules.toml changes:\n  api: 2 per day for each value of the header x-user"),
        "{said}"
    );
    assert!(said.contains("curl -i -H 'x-user: demo' ") && !said.contains("Add --"), "{said}");
}

#[test]
fn a_bad_file_at_the_start_is_one_error_line() {
    let missing = TempDir::new().unwrap().path().join("rules.toml");
    for (file, reason) in [
        (RulesFile::new("rules.toml", ""), "line 1: missing field `rule`"),
        (RulesFile::new("rules.toml", &rule("api", "5/lustrum")), "line 3, rule \"api\", quota: \"lustrum\""),
        (RulesFile::new("rules.toml", "[[rule]\n"), "line 1: not TOML"),
        (RulesFile::new("rules.json", "[[rule]]\n"), "line 1"),
        (
            RulesFile::new("rules.toml", &(rule("api", "5/s") + "cost = \"kib\"\n")),
            "line 5, rule \"api\", cost: \"kib\" is not a cost",
        ),
        (
            RulesFile::new("rules.toml", &rule("login-turn", "5/s")),
            "rule \"login-turn\" has a meaning of its own",
        ),
        (RulesFile { path: missing, _directory: TempDir::new().unwrap() }, "cannot be read: "),
    ] {
        let (code, line) = complaint(&file.options());
        assert_eq!(code, 2, "{line}");
        let path = file.path.display();
        assert!(line.starts_with(&format!("error: --rules: {path}: {reason}")), "{line}");
    }
}
