//! Every mistake of a text.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ConfigError;
use super::file::{FileFields, RuleFile, steps};
use super::place::{Format, PathStep, SourceText, work};
use super::registry::Registry;
use super::rule::RuleConfig;
use super::rule_fields::RuleFields;

/// How many mistakes are listed at most.
const MOST: usize = 1_000;

impl RuleFile {
    /// Returns every mistake of rules in TOML, in the order of their lines: at most 1,000. A text
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
        mistakes(&SourceText::new(Format::Toml, text))
    }

    /// Returns every mistake of rules in JSON: see [`RuleFile::mistakes_in_toml`].
    pub fn mistakes_in_json(text: &str) -> Vec<ConfigError> {
        mistakes(&SourceText::new(Format::Json, text))
    }
}

fn mistakes(source: &SourceText<'_>) -> Vec<ConfigError> {
    let any = Registry::of_any_name();
    let Err(first) = RuleFile::read(source).and_then(|file| any.rules(&file)) else { return Vec::new() };
    work::note(source.text.len());
    // There is none if the form of the text is wrong.
    let value: Option<Value> = match source.format {
        Format::Toml => toml::from_str(source.text).ok(),
        Format::Json => serde_json::from_str(source.text).ok(),
    };
    let mut found = Found { source, mistakes: Vec::new(), known: HashSet::new() };
    // Not all can be found in the value, such as a field that is given twice.
    found.add(first);
    if let Some(Value::Object(mut file)) = value {
        let rules = file.insert("rule".to_owned(), Value::Array(Vec::new()));
        found.read::<FileFields>(&mut Value::Object(file), &[]);
        let mut names = HashSet::new();
        for (at, rule) in rules.iter().filter_map(Value::as_array).flatten().enumerate() {
            if found.mistakes.len() >= MOST {
                break;
            }
            if let Some(name @ Value::String(_)) = rule.get("name").filter(|name| !names.insert(*name)) {
                let (rule, field) = (name.as_str().map(str::to_owned), Some("name".to_owned()));
                let reason = format!("{name}: two rules have this name");
                found.add(source.in_rule(at, ConfigError { line: None, rule, field, reason }));
            }
            found.read_rule(at, rule.clone());
        }
    }
    found.mistakes.truncate(MOST);
    found.mistakes.sort_by_key(|mistake| mistake.line);
    found.mistakes
}

struct Found<'a, 't> {
    source: &'a SourceText<'t>,
    mistakes: Vec<ConfigError>,
    known: HashSet<ConfigError>,
}

impl Found<'_, '_> {
    fn add(&mut self, mistake: ConfigError) {
        if self.known.insert(mistake.clone()) {
            self.mistakes.push(mistake);
        }
    }

    fn read_rule(&mut self, at: usize, mut rule: Value) {
        let place = [PathStep::Name("rule".to_owned()), PathStep::Index(at)];
        let mut fields = self.read::<RuleFields>(&mut rule, &place);
        let any = Registry::of_any_name();
        let checked = |fields| RuleConfig::try_new(fields).and_then(|config| any.rule(&config));
        while let Some(Err(mistake)) = fields.map(checked) {
            let is_free = |field: &&str| !RuleFields::DEPENDED_ON.contains(field);
            let removed = mistake.field.as_deref().filter(is_free);
            let removed = removed.and_then(|field| rule.as_object_mut()?.remove(field));
            self.add(self.source.in_rule(at, mistake));
            fields = removed.and_then(|_| serde_json::from_value(rule.clone()).ok());
        }
    }

    /// Reads a table. Reports each field with a mistake in its form, and removes it. Returns the
    /// value if there was none.
    fn read<T: DeserializeOwned>(&mut self, table: &mut Value, place: &[PathStep]) -> Option<T> {
        let mut wrong = HashSet::new();
        while self.mistakes.len() < MOST {
            let error = match serde_path_to_error::deserialize(&*table) {
                Ok(read) => return wrong.is_empty().then_some(read),
                Err(error) => error,
            };
            let (path, reason) = (steps(error.path()), error.inner().to_string());
            let missing = reason.strip_prefix("missing field `").filter(|_| path.is_empty());
            let missing = missing.and_then(|name| name.strip_suffix('`'));
            let field = match path.first() {
                Some(PathStep::Name(name)) => Some(name.as_str()),
                _ => missing,
            };
            if field.is_none_or(|field| !wrong.contains(field)) {
                self.add(self.source.in_file(&[place, &path].concat(), &reason));
            }
            match missing {
                // All required fields are strings, of which this is a valid one.
                Some(name) => table.as_object_mut()?.insert(name.to_owned(), "ip".into()),
                None => table.as_object_mut()?.remove(field?),
            };
            wrong.insert(field?.to_owned());
        }
        None
    }
}
