//! The files of the chapter are read by its registry.

use tollgate::config::{Registry, RuleFile};
use tollgate::extract::{ClientIp, extension};
use tollgate::{Head, Key};

// The authentication layer inserts it into the extensions.
#[derive(Clone)]
struct Caller {
    id: u64,
    plan: &'static str,
}

fn registry() -> Registry {
    Registry::new()
        .client_ip(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]))
        .key("user", extension(|caller: &Caller| caller.id))
        .class("plan", |head: &Head<'_>, _: &Key| head.extensions().get::<Caller>().map(|caller| caller.plan))
}

#[test]
fn the_files_of_the_chapter_are_valid() {
    let text = std::fs::read_to_string(super::guide().join("rules_from_a_file.md")).unwrap();
    let blocks = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let mut read = Vec::new();
    for (format, block) in blocks {
        let file = match format {
            "toml" => RuleFile::from_toml(block),
            "json" => RuleFile::from_json(block),
            _ => continue,
        };
        let rules = registry().rules(&file.unwrap()).unwrap();
        read.push((format, rules.len()));
    }
    assert_eq!(read, [("toml", 4), ("json", 2)]);
}

/// The files name what this registry has.
#[test]
fn the_registry_is_that_of_the_chapter() {
    super::shows("rules_from_a_file.md", include_str!("rules_from_a_file.rs"), &["fn registry"]);
}

#[test]
fn the_mistakes_of_the_chapter_have_the_message_that_it_shows() {
    let text = std::fs::read_to_string(super::guide().join("rules_from_a_file.md")).unwrap();
    let file = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let error = |from: &str, to: &str| {
        let file = RuleFile::from_toml(&file.replace(from, to));
        file.and_then(|file| registry().rules(&file)).map(drop).unwrap_err().to_string()
    };
    let shown = |message: &str| text.lines().any(|line| line == message);
    let message = error("60/min", "60/fortnight");
    assert!(shown(&message), "{message}");
    let message = error("\"user | ip\"", "\"usr | ip\"");
    let (start, end) =
        (message.split(", header").next().unwrap(), message.rsplit(" or a name").next().unwrap());
    assert!(shown(&format!("{start}, … or a name{end}")), "{message}");
    let message = error("when = { path = \"/api/*\" }", "quota = \"5/s\"");
    assert!(shown(&message), "{message}");
}
