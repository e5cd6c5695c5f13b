//! Links of the Markdown files lead to files and headings, and the guide's links work in both
//! places: in rustdoc by `links.md`, on a code host by the end of each chapter.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use tollgate_core::LogCode;

/// The Markdown files below a folder, without those of builds.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            documents(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

fn below(folder: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    documents(&folder, &mut found);
    found
}

/// The text without code blocks.
fn prose(path: &Path) -> String {
    let text = read_to_string(path).unwrap();
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The label and the target of a line `[label]: target`.
fn definition(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ").filter(|(label, _)| !label.contains(']'))
}

fn definitions(prose: &str) -> BTreeMap<&str, &str> {
    prose.lines().filter_map(definition).collect()
}

/// The anchors of the headings, as code hosts and rustdoc make them.
fn anchors(prose: &str) -> Vec<String> {
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    titles.map(|title| title.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut links = 0;
    for document in below(root.to_owned()) {
        // Its targets are paths of rustdoc.
        if document.ends_with("guide/links.md") {
            continue;
        }
        let text = prose(&document);
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let targets = inline.chain(definitions(&text).into_values());
        for link in targets.filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: {link} leads nowhere", document.display());
            if !anchor.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
                let anchors = anchors(&prose(&target));
                assert!(anchors.iter().any(|known| known == anchor), "{}: {link}", document.display());
            }
            links += 1;
        }
    }
    assert!(links > 200, "{links}");
}

/// `[label]` or `[text][label]`.
fn uses(text: &str, label: &str) -> bool {
    let text: String = text.lines().filter(|line| definition(line).is_none()).collect::<Vec<_>>().join(" ");
    text.match_indices(&format!("[{label}]"))
        .any(|(at, found)| !text[at + found.len()..].starts_with(['(', '[']))
}

#[test]
fn chapter_links_have_a_target_in_rustdoc_and_on_a_code_host() {
    let in_rustdoc = read_to_string(super::guide().join("links.md")).unwrap();
    let in_rustdoc = definitions(&in_rustdoc);
    let chapters = below(super::guide());
    let mut texts = Vec::new();
    for chapter in chapters.iter().filter(|path| !path.ends_with("links.md")) {
        let text = prose(chapter);
        let on_a_host = definitions(&text);
        for (label, target) in &on_a_host {
            assert!(uses(&text, label), "{}: no text uses [{label}]", chapter.display());
            let known = in_rustdoc.get(label);
            assert!(target.contains("://") || known.is_some(), "links.md lacks [{label}]");
            // Chapters are linked to the same heading in both.
            if let (Some(known), Some((_, anchor))) = (known, target.split_once('#')) {
                assert!(known.ends_with(&format!("#{anchor}")), "[{label}] differs: {known}, {target}");
            }
        }
        for label in in_rustdoc.keys().filter(|label| uses(&text, label)) {
            assert!(on_a_host.contains_key(label), "{}: the end lacks [{label}]", chapter.display());
        }
        texts.push(text);
    }
    for label in in_rustdoc.keys() {
        assert!(texts.iter().any(|text| uses(text, label)), "no chapter uses [{label}] of links.md");
    }
}

#[test]
fn each_chapter_is_a_module_and_its_code_is_a_doctest() {
    let modules = read_to_string(super::guide().join("mod.rs")).unwrap();
    let tests = include_str!("../support/guide.rs");
    for chapter in below(super::guide()) {
        let name = chapter.file_stem().unwrap().to_str().unwrap();
        if matches!(name, "README" | "links") {
            continue;
        }
        assert!(modules.lines().any(|line| line.trim() == name), "mod.rs lacks {name}");
        let text = read_to_string(&chapter).unwrap();
        for block in text.split("\n```rust").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            assert!(!block.contains("\n# ") && !block.contains("\n#\n"), "{name} has hidden lines: {block}");
        }
        if text.contains("\n```rust") {
            assert!(tests.contains(&format!("    {name} = ")), "support/guide.rs lacks {name}");
        }
    }
}

#[test]
fn each_code_of_the_log_has_its_row() {
    let chapter = prose(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/tollgate/src/guide/when_limits_seem_wrong.md"
    )));
    let rows: Vec<_> = chapter.lines().filter(|line| line.starts_with("| `TOLLGATE_E")).collect();
    let codes = LogCode::ALL;
    assert_eq!(rows, codes.map(|code| format!("| `{code}` | {} | {} |", code.meaning(), code.fix())));
}
