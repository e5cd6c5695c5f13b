//! What an error says of a text. The text may be no file of rules but a secret, such as one that
//! was mounted at the wrong path. So no error quotes it, but for the beginning of a name, and for
//! what the fields of rules say.

use super::place::{Format, PathStep};

/// The most characters of a name in an error.
const MOST_OF_NAME: usize = 20;

/// The beginning of a name that a file has.
pub(super) fn name(text: &str) -> String {
    let (mut signs, mut start) = (text.chars(), String::new());
    start.extend(signs.by_ref().take(MOST_OF_NAME));
    let more = if signs.next().is_some() { "…" } else { "" };
    format!("{}{more}", start.escape_debug())
}

/// A message of serde about the value at a path, with what is allowed.
pub(super) fn reason(path: &[PathStep], message: &str) -> String {
    let is_of_rule = matches!(path, [_, PathStep::Index(_), _, ..]);
    // What is expected has none of these separators in it.
    let named = |before: &str, kind: &str, then: &str| {
        let rest = message.strip_prefix(before)?;
        let at = rest.rfind(then)?;
        Some(format!("{kind} `{}{}", name(&rest[..at]), &rest[at..]))
    };
    let unknown = named("unknown field `", "unknown field", "`, expected ");
    let twice = || named("duplicate field `", "duplicate field", "`");
    let wrong = || {
        let (what, expected) = message.strip_prefix("invalid ")?.rsplit_once(", expected ")?;
        let kind = what.split(['"', '`']).next().unwrap_or_default().trim_end();
        (!is_of_rule).then(|| format!("invalid {kind}, expected {expected}"))
    };
    let reason = unknown.or_else(twice).or_else(wrong).unwrap_or_else(|| message.to_owned());
    plain(&escaped(&reason)) + example(message)
}

/// The same text, where signs that are not shown are escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut all = String::new();
    for sign in text.chars() {
        let is_shown = matches!(sign, '"' | '\'' | '\\') || sign.escape_debug().len() == 1;
        if is_shown { all.push(sign) } else { all.extend(sign.escape_debug()) }
    }
    all
}

/// What a text that is not of this format seems to be, and what to do.
pub(super) fn hint(format: Format, text: &str, line: usize) -> &'static str {
    let mut lines = text.lines().map(str::trim);
    let first = lines.clone().find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    let key = first.split_once(':').filter(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
    let is_word =
        |key: &str| key.bytes().all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, b'-' | b'_'));
    let is_yaml = first == "---"
        || first.starts_with("- ")
        || first.starts_with("%YAML")
        || key.is_some_and(|(key, _)| is_word(key));
    match format {
        _ if is_yaml => ": this seems to be YAML, and rules are in TOML or JSON",
        Format::Toml if first.starts_with('{') => ": this seems to be JSON, whose files end in .json",
        Format::Json if first.starts_with("[[") => ": this seems to be TOML, whose files do not end in .json",
        Format::Toml if lines.nth(line - 1) == Some("[rule]") => ": write [[rule]] for each rule",
        _ => "",
    }
}

/// Replaces the names of types, which only Rust's readers know.
fn plain(reason: &str) -> String {
    let number = "expected a whole number from 0 to 4294967295";
    let day = "expected a whole number from 1 to 31";
    let reason = reason.replace("expected u32", number).replace("expected u8", day);
    reason.replace("expected a sequence", "expected a list: [[rule]] in TOML")
}

/// What a field that is missing looks like.
fn example(message: &str) -> &'static str {
    match message {
        "missing field `rule`" => {
            ": each rule begins with [[rule]] in TOML, and is in the list \"rule\" in JSON"
        }
        "missing field `name`" => ": such as name = \"api\"",
        "missing field `by`" => ": what divides the quota among callers, such as by = \"ip\"",
        "missing field `for`" => ": how long a block lasts, such as for = \"15m\"",
        "missing field `after`" => ": how many denials start a block, such as after = 20",
        _ => "",
    }
}

pub(super) fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}
