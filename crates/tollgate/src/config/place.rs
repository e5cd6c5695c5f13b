//! Where a field is in the text of a file.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use toml::de::{DeTable, DeValue};

/// A step from a table or a list to a value in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathStep {
    Name(String),
    Index(usize),
}

/// The format and the text of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum SourceText<'a> {
    Toml(&'a str),
    Json(&'a str),
}

impl<'a> SourceText<'a> {
    /// The line of the value at the end of this path, or of the last one on it that exists. And its
    /// text, if the value is there and is a string.
    pub(super) fn find(self, path: &[PathStep]) -> (usize, Option<String>) {
        match self {
            SourceText::Toml(text) => {
                let Ok(table) = DeTable::parse(text) else { return (1, None) };
                let (offset, value) = find_toml(table.get_ref(), path);
                (line_at(text, offset), value)
            }
            SourceText::Json(text) => {
                let (found, whole) = find_json(text, path);
                // Both are in the text.
                let offset = found.as_ptr() as usize - text.as_ptr() as usize;
                (line_at(text, offset), serde_json::from_str(found).ok().filter(|_| whole))
            }
        }
    }
}

/// The line, from 1, of a byte of the text.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
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

fn find_json<'a>(text: &'a str, path: &[PathStep]) -> (&'a str, bool) {
    let text = text.trim_start();
    let Some((step, rest)) = path.split_first() else { return (text, true) };
    let next = match step {
        PathStep::Name(name) => {
            let table = serde_json::from_str::<BTreeMap<String, &'a RawValue>>(text);
            table.ok().and_then(|table| table.get(name).copied())
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
