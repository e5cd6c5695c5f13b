//! Where a field is in the text of a file.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use toml::de::{DeTable, DeValue};

/// A step from a table or a list to a value in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathStep {
    Name(String),
    Index(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Toml,
    Json,
}

/// The text of a file.
#[derive(Debug)]
pub(super) struct SourceText<'a> {
    pub(super) format: Format,
    pub(super) text: &'a str,
    /// Made once, for the first place that is searched.
    index: OnceCell<Index<'a>>,
}

/// Where lines begin, and where the values are. It is as long as the text, so that many mistakes
/// are found in work that grows with the text alone.
#[derive(Debug)]
struct Index<'a> {
    /// The offset of each line after the first.
    lines: Vec<usize>,
    values: Values<'a>,
}

#[derive(Debug)]
enum Values<'a> {
    Toml(DeTable<'a>),
    Json {
        fields: JsonTable<'a>,
        rules: Vec<JsonRule<'a>>,
    },
    /// Of a text of another form.
    None,
}

type JsonTable<'a> = BTreeMap<String, &'a RawValue>;

/// A rule, and its fields if it is a table.
type JsonRule<'a> = (&'a RawValue, JsonTable<'a>);

impl<'a> SourceText<'a> {
    /// A text without its byte order mark, if it has one.
    pub(super) fn new(format: Format, text: &'a str) -> SourceText<'a> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        SourceText { format, text, index: OnceCell::new() }
    }

    /// The line of the value at the end of this path, or of the last one on it that exists. And its
    /// text, if the value is there and is a string.
    pub(super) fn find(&self, path: &[PathStep]) -> (usize, Option<String>) {
        let (offset, value) = match &self.index().values {
            Values::None => (0, None),
            Values::Toml(table) => find_toml(table, path),
            Values::Json { fields, rules } => {
                let (found, whole) =
                    find_in_rules(fields, rules, path).unwrap_or((self.text.trim_start(), false));
                // Both are in the text.
                let offset = found.as_ptr() as usize - self.text.as_ptr() as usize;
                (offset, serde_json::from_str(found).ok().filter(|_| whole))
            }
        };
        (self.line_at(offset), value)
    }

    /// The line, from 1, of a byte of the text.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        1 + self.index().lines.partition_point(|line| *line <= offset)
    }

    fn index(&self) -> &Index<'a> {
        self.index.get_or_init(|| {
            work::note(self.text.len());
            let lines = self.text.match_indices('\n').map(|(end, _)| end + 1).collect();
            let values = match self.format {
                Format::Toml => match DeTable::parse(self.text) {
                    Ok(table) => Values::Toml(table.into_inner()),
                    Err(_) => Values::None,
                },
                Format::Json => match serde_json::from_str::<JsonTable<'a>>(self.text) {
                    Ok(fields) => {
                        let rules = fields.get("rule").and_then(|list| serde_json::from_str(list.get()).ok());
                        let rules: Vec<&RawValue> = rules.unwrap_or_default();
                        let rule =
                            |rule: &'a RawValue| (rule, serde_json::from_str(rule.get()).unwrap_or_default());
                        Values::Json { rules: rules.into_iter().map(rule).collect(), fields }
                    }
                    Err(_) => Values::None,
                },
            };
            Index { lines, values }
        })
    }
}

fn find_toml(table: &DeTable<'_>, path: &[PathStep]) -> (usize, Option<String>) {
    let Some((PathStep::Name(name), mut rest)) = path.split_first() else { return (0, None) };
    let Some(mut value) = table.get(name.as_str()) else { return (0, None) };
    while let Some((step, after)) = rest.split_first() {
        let next = match (step, value.get_ref()) {
            (PathStep::Name(name), DeValue::Table(table)) => table.get(name.as_str()),
            (PathStep::Index(index), DeValue::Array(array)) => array.get(*index),
            _ => None,
        };
        let Some(next) = next else { return (value.span().start, None) };
        (value, rest) = (next, after);
    }
    (value.span().start, value.get_ref().as_str().map(str::to_owned))
}

/// The last value on a path that exists, and whether it is at the end of the path.
fn find_in_rules<'a>(
    fields: &JsonTable<'a>,
    rules: &[JsonRule<'a>],
    path: &[PathStep],
) -> Option<(&'a str, bool)> {
    let (Some(PathStep::Name(first)), rest) = (path.first(), path.get(1..)?) else { return None };
    let rule = match rest {
        [PathStep::Index(at), ..] if first == "rule" => rules.get(*at),
        _ => None,
    };
    match (rule, rest) {
        (Some((rule, fields)), [_, PathStep::Name(field), rest @ ..]) => {
            Some(fields.get(field).map_or((rule.get(), false), |value| find_json(value.get(), rest)))
        }
        _ => fields.get(first).map(|value| find_json(value.get(), rest)),
    }
}

fn find_json<'a>(text: &'a str, path: &[PathStep]) -> (&'a str, bool) {
    let Some((step, rest)) = path.split_first() else { return (text, true) };
    let next = match step {
        PathStep::Name(name) => {
            serde_json::from_str::<JsonTable<'a>>(text).ok().and_then(|table| table.get(name).copied())
        }
        PathStep::Index(index) => {
            serde_json::from_str::<Vec<&'a RawValue>>(text).ok().and_then(|list| list.get(*index).copied())
        }
    };
    match next {
        Some(next) => find_json(next.get(), rest),
        None => (text, false),
    }
}

/// Counts the bytes that are parsed, in tests.
pub(super) mod work {
    #[cfg(test)]
    thread_local! {
        static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    /// Notes that a text of so many bytes is parsed.
    pub(in crate::config) fn note(bytes: usize) {
        #[cfg(test)]
        PARSED.set(PARSED.get() + bytes);
        #[cfg(not(test))]
        let _ = bytes;
    }

    /// The bytes that were parsed since the last call.
    #[cfg(test)]
    pub(in crate::config) fn parsed() -> usize {
        PARSED.take()
    }
}
