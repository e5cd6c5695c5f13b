//! Every mistake of a text.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::fields::RuleFields;
use super::file::{FileFields, RuleFile, steps};
use super::place::{PathStep, SourceText};
use super::rule::RuleConfig;

/// How many mistakes are listed at most: each is searched in the whole text.
const MOST: usize = 100;

/// Fields on which others depend. Without them, fields that are correct would seem to be mistakes.
const DEPENDED_ON: [&str; 5] = ["name", "quota", "in-flight", "by", "reserve"];

impl RuleFile {
    /// Returns every mistake of rules in TOML, in the order of their lines: at most 100. A text
    /// that is not TOML is one mistake.
    ///
    /// ```
    /// use tollgate::config::RuleFile;
    ///
    /// let text = r#"
    /// [[rule]]
    /// name = "api"
    /// quota = "100/fortnight"
    /// by = "IP"
    /// "#;
    /// let lines: Vec<_> = RuleFile::mistakes_in_toml(text).iter().map(|mistake| mistake.line()).collect();
    /// assert_eq!(lines, [Some(4), Some(5)]);
    /// ```
    pub fn mistakes_in_toml(text: &str) -> Vec<ConfigError> {
        mistakes(SourceText::Toml(text), toml::from_str(text).ok())
    }

    /// Returns every mistake of rules in JSON: see [`RuleFile::mistakes_in_toml`].
    pub fn mistakes_in_json(text: &str) -> Vec<ConfigError> {
        mistakes(SourceText::Json(text), serde_json::from_str(text).ok())
    }
}

/// The mistakes in a text, of which this is the value unless its form is wrong.
fn mistakes(source: SourceText<'_>, value: Option<Value>) -> Vec<ConfigError> {
    let Err(first) = RuleFile::read(source) else { return Vec::new() };
    // Not all can be found in the value, such as a field that is given twice.
    let mut found = Found { source, mistakes: vec![first] };
    if let Some(Value::Object(mut file)) = value {
        let rules = file.insert("rule".to_owned(), Value::Array(Vec::new()));
        found.read::<FileFields>(&mut Value::Object(file), &[]);
        let mut names = HashSet::new();
        for (at, rule) in rules.iter().filter_map(Value::as_array).flatten().enumerate() {
            if let Some(name @ Value::String(_)) = rule.get("name").filter(|name| !names.insert(*name)) {
                let (rule, field) = (name.as_str().map(str::to_owned), Some("name".to_owned()));
                let reason = format!("{name}: two rules have this name");
                found.add(source.in_rule(at, ConfigError { line: None, rule, field, reason }));
            }
            found.read_rule(at, rule.clone());
            if found.mistakes.len() >= MOST {
                break;
            }
        }
    }
    found.mistakes.sort_by_key(|mistake| mistake.line);
    found.mistakes
}

struct Found<'a> {
    source: SourceText<'a>,
    mistakes: Vec<ConfigError>,
}

impl Found<'_> {
    fn add(&mut self, mistake: ConfigError) {
        if self.mistakes.len() < MOST && !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }

    fn read_rule(&mut self, at: usize, mut rule: Value) {
        let place = [PathStep::Name("rule".to_owned()), PathStep::Index(at)];
        let mut fields = self.read::<RuleFields>(&mut rule, &place);
        while let Some(Err(mistake)) = fields.map(RuleConfig::try_new) {
            let removed = mistake.field.as_deref().filter(|field| !DEPENDED_ON.contains(field));
            let removed = removed.and_then(|field| rule.as_object_mut()?.remove(field));
            self.add(self.source.in_rule(at, mistake));
            fields = removed.and_then(|_| serde_json::from_value(rule.clone()).ok());
        }
    }

    /// Reads a table, and removes each field with a mistake in its form. Returns the value if there
    /// was none.
    fn read<T: DeserializeOwned>(&mut self, table: &mut Value, place: &[PathStep]) -> Option<T> {
        let (mut removed, mut is_wrong) = (Vec::new(), false);
        loop {
            let error = match serde_path_to_error::deserialize(&*table) {
                Ok(read) => return Some(read).filter(|_| !is_wrong),
                Err(error) => error,
            };
            is_wrong = true;
            let (path, reason) = (steps(error.path()), error.inner().to_string());
            let missing = reason.strip_prefix("missing field `").and_then(|name| name.strip_suffix('`'));
            let missing = missing.map(|name| [&path[..], &[PathStep::Name(name.to_owned())]].concat());
            if missing.as_ref().is_none_or(|missing| !removed.contains(missing)) {
                self.add(self.source.in_file(&[place, &path].concat(), &reason));
            }
            let table = table.as_object_mut().filter(|_| self.mistakes.len() < MOST)?;
            match missing.as_deref() {
                // All required fields are strings, of which this is a valid one.
                Some([PathStep::Name(name)]) => drop(table.insert(name.clone(), "ip".into())),
                _ => removed.push(remove(table, &path)?),
            }
        }
    }
}

/// Removes the field at a path, or the list that contains it. Returns its path.
fn remove(table: &mut Map<String, Value>, path: &[PathStep]) -> Option<Vec<PathStep>> {
    let (PathStep::Name(name), rest) = path.split_first()? else { return None };
    if let (Some(PathStep::Name(_)), Some(Value::Object(inner))) = (rest.first(), table.get_mut(name))
        && let Some(removed) = remove(inner, rest)
    {
        return Some([&path[..1], &removed].concat());
    }
    table.remove(name).map(|_| path[..1].to_vec())
}
