//! A file of rules.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};
use toml::de::DeTable;

use super::error::{ConfigError, Mistake};
use super::message::{hint, name, one_line, reason};
use super::place::{Format, PathStep, SourceText, work};
use super::rule::RuleConfig;
use super::rule_fields::RuleFields;

/// The rules of a file, whose fields fit together. [`Registry::rules`](super::Registry::rules)
/// checks their values, and makes [`Rule`](crate::Rule)s of them.
///
/// ```
/// use tollgate::config::RuleFile;
///
/// let file = RuleFile::from_toml(r#"
/// [[rule]]
/// name = "api"
/// quota = "100/min burst 20"
/// by = "header:x-api-key | ip"
/// "#)?;
/// assert_eq!(RuleFile::from_json(&file.to_json()), Ok(file));
/// # Ok::<(), tollgate::config::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct RuleFile {
    schema: Option<String>,
    rules: Vec<RuleConfig>,
    text: Box<str>,
    format: Format,
}

/// Rules for a rate limiter.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RuleFile"))]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct FileFields {
    /// The address of this schema, for editors.
    #[serde(rename = "$schema")]
    schema: Option<String>,
    /// The rules. A request is charged to all that apply to it, or to none.
    rule: Vec<RuleFields>,
}

/// The same for writing.
#[derive(Serialize)]
struct WrittenFile<'a> {
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    schema: Option<&'a String>,
    rule: &'a [RuleConfig],
}

impl RuleFile {
    /// Reads rules in TOML.
    ///
    /// # Errors
    /// [`ConfigError`] with the line of the first mistake.
    pub fn from_toml(text: &str) -> Result<RuleFile, ConfigError> {
        RuleFile::read(&SourceText::new(Format::Toml, text))
    }

    /// Reads rules in JSON, with the same fields.
    ///
    /// # Errors
    /// [`ConfigError`] with the line of the first mistake.
    pub fn from_json(text: &str) -> Result<RuleFile, ConfigError> {
        RuleFile::read(&SourceText::new(Format::Json, text))
    }

    pub(super) fn read(source: &SourceText<'_>) -> Result<RuleFile, ConfigError> {
        let FileFields { schema, rule: fields } = source.fields()?;
        let (mut rules, mut names) = (Vec::new(), HashSet::new());
        for (at, fields) in fields.into_iter().enumerate() {
            let rule = RuleConfig::try_new(fields).map_err(|error| source.in_rule(at, error))?;
            if !names.insert(rule.name.clone()) {
                let twice = Mistake::new("name", "two rules have this name").in_rule(&rule.name, &rule);
                return Err(source.in_rule(at, twice));
            }
            rules.push(rule);
        }
        if rules.is_empty() {
            let path = [PathStep::Name("rule".to_owned())];
            return Err(
                source.in_file(&path, "no rules: nothing would be limited; a rule has name, quota and by")
            );
        }
        Ok(RuleFile { schema, rules, text: source.text.into(), format: source.format })
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[RuleConfig] {
        &self.rules
    }

    /// Writes the rules in TOML. Comments of the text that was read are lost.
    pub fn to_toml(&self) -> String {
        // All of these fields have a form in TOML.
        toml::to_string(&self.written()).unwrap_or_default()
    }

    /// Writes the rules in JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.written()).unwrap_or_default()
    }

    /// The JSON Schema of such a file, by which editors complete and check it.
    pub const fn json_schema() -> &'static str {
        include_str!("schema.json")
    }

    /// Returns errors about fields of rules, with their lines and values, for checks of your own.
    /// Each is about the rule with this number, from 0.
    ///
    /// ```
    /// use tollgate::config::RuleFile;
    ///
    /// let file = RuleFile::from_toml("[[rule]]\nname = \"api\"\nquota = \"5/s\"\nby = \"ip\"")?;
    /// let errors = file.errors([(0, "by", "our rules are by user")]);
    /// assert_eq!(errors[0].to_string(), "line 4, rule \"api\", by: \"ip\": our rules are by user");
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn errors<R: fmt::Display>(
        &self,
        errors: impl IntoIterator<Item = (usize, &'static str, R)>,
    ) -> Vec<ConfigError> {
        let source = self.source();
        let error = |(at, field, reason): (usize, &'static str, R)| {
            let mistake = Mistake::new(field, reason);
            let rule = self.rules.get(at)?;
            Some(source.in_rule(at, mistake.in_rule(&rule.name, rule)))
        };
        errors.into_iter().filter_map(error).collect()
    }

    fn written(&self) -> impl Serialize {
        WrittenFile { schema: self.schema.as_ref(), rule: &self.rules }
    }

    /// The text that was read.
    pub(super) fn source(&self) -> SourceText<'_> {
        SourceText::new(self.format, &self.text)
    }
}

impl PartialEq for RuleFile {
    fn eq(&self, other: &RuleFile) -> bool {
        (&self.schema, &self.rules) == (&other.schema, &other.rules)
    }
}

impl fmt::Debug for RuleFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleFile").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl SourceText<'_> {
    fn fields(&self) -> Result<FileFields, ConfigError> {
        work::note(2 * self.text.len());
        match self.format {
            Format::Toml => {
                let syntax = |error: toml::de::Error| self.syntax(self.line_of(&error), error.message());
                let deserializer = toml::Deserializer::parse(self.text).map_err(syntax)?;
                serde_path_to_error::deserialize(deserializer)
                    .map_err(|error| self.in_file(&steps(error.path()), error.inner().message()))
            }
            Format::Json => {
                let syntax = |error: serde_json::Error| self.syntax(error.line(), &without_place(&error));
                // The whole text first, since a line is found in a whole text only.
                serde_json::from_str::<&RawValue>(self.text).map_err(syntax)?;
                let mut deserializer = serde_json::Deserializer::from_str(self.text);
                serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
                    let (path, error) = (steps(error.path()), error.into_inner());
                    let message = without_place(&error);
                    match error.is_data() {
                        // The path of a duplicate ends before it.
                        true if message.starts_with("duplicate field") => {
                            ConfigError { line: Some(error.line()), ..self.in_file(&path, &message) }
                        }
                        true => self.in_file(&path, &message),
                        false => syntax(error),
                    }
                })
            }
        }
    }

    /// An error of a text that is not of its format. It does not quote the text.
    fn syntax(&self, line: usize, message: &str) -> ConfigError {
        let (line, format) = (line.max(1), if self.format == Format::Toml { "TOML" } else { "JSON" });
        let reason = format!("not {format}: {}{}", one_line(message), hint(self.format, self.text, line));
        ConfigError { line: Some(line), rule: None, field: None, reason }
    }

    /// The line of an error of TOML. One about too many levels has no place: its line is the first
    /// one with which the text has this error.
    fn line_of(&self, error: &toml::de::Error) -> usize {
        let Some(span) = error.span() else {
            let ends: Vec<usize> = self.text.match_indices('\n').map(|(end, _)| end).collect();
            let has_error =
                |text: &str| DeTable::parse(text).is_err_and(|other| other.message() == error.message());
            return 1 + ends.partition_point(|end| !has_error(&self.text[..*end]));
        };
        self.line_at(span.start)
    }

    /// An error at a path from the top of the file.
    pub(super) fn in_file(&self, path: &[PathStep], message: &str) -> ConfigError {
        let (line, _) = self.find(path);
        let (rule, field) = match path {
            [PathStep::Name(list), PathStep::Index(at), field @ ..] => {
                let of_name =
                    [PathStep::Name(list.clone()), PathStep::Index(*at), PathStep::Name("name".to_owned())];
                (self.find(&of_name).1, field)
            }
            other => (None, other),
        };
        let field = field.iter().map(|step| match step {
            PathStep::Name(field) => name(field),
            PathStep::Index(at) => at.to_string(),
        });
        let field = Some(field.collect::<Vec<_>>().join(".")).filter(|field| !field.is_empty());
        ConfigError { line: Some(line), rule, field, reason: reason(path, &one_line(message)) }
    }

    /// Adds the line to an error of the rule at a place.
    pub(super) fn in_rule(&self, at: usize, error: ConfigError) -> ConfigError {
        let rule = [PathStep::Name("rule".to_owned()), PathStep::Index(at)];
        let path: Vec<PathStep> = rule.into_iter().chain(error.field.clone().map(PathStep::Name)).collect();
        ConfigError { line: Some(self.find(&path).0), ..error }
    }
}

pub(super) fn steps(path: &Path) -> Vec<PathStep> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(PathStep::Index(*index)),
        Segment::Map { key } => Some(PathStep::Name(key.clone())),
        _ => None,
    };
    path.iter().filter_map(step).collect()
}

/// The message of an error of serde_json, which ends with the line that `ConfigError` begins with.
fn without_place(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&place).unwrap_or(&message).to_owned()
}
