//! Writes the JSON Schema of a file of rules: `schema.json`, which is compiled in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use serde_json::{Value, json};
use tollgate_core::Quota;

use super::RuleFile;
use super::file::FileFields;
use super::rule::RuleConfig;
use super::rule_fields::RuleFields;
use super::values::{AsText, InText, NamedValues, OneOrMany, Units, UnitsOr};

/// The schema of a type that has several forms.
macro_rules! forms {
    ($type:ident $(<$bound:ident>)?, $schema:tt) => {
        impl$(<$bound: InText>)? JsonSchema for $type$(<$bound>)? {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

forms!(AsText<T>, { "type": "string", "examples": [T::EXAMPLE] });
forms!(Units, { "type": "integer", "minimum": 0, "maximum": Quota::MAX_UNITS });
forms!(UnitsOr<T>, { "type": ["integer", "string"], "minimum": 0, "examples": [T::EXAMPLE] });
forms!(OneOrMany<T>, {
    "type": ["string", "array"], "items": { "type": "string" }, "minItems": 1, "examples": [T::EXAMPLE]
});

/// The schema of a type that is written as another.
macro_rules! written_as {
    ($type:ident $(<$bound:ident>)?, $other:ty) => {
        impl$(<$bound: JsonSchema>)? JsonSchema for $type$(<$bound>)? {
            fn inline_schema() -> bool {
                <$other>::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                <$other>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$other>::json_schema(generator)
            }
        }
    };
}

written_as!(NamedValues<V>, BTreeMap<String, V>);
written_as!(RuleConfig, RuleFields);

/// A field is given or absent: `null` is a mistake.
fn clean(schema: &mut Value) {
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
        if let [one] = &mut types[..] {
            schema["type"] = one.take();
        }
    }
    if let Some([form, null]) = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice)
        && null["type"] == "null"
    {
        let form = form.as_object().unwrap().clone();
        let fields = schema.as_object_mut().unwrap();
        fields.remove("anyOf");
        fields.extend(form);
    }
    // A link is for readers of the library.
    let is_link = |text: &Value| text.as_str().is_some_and(|text| text.contains("[`"));
    if let Some(fields) =
        schema.as_object_mut().filter(|fields| fields.get("description").is_some_and(is_link))
    {
        fields.remove("description");
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::Array(values) => values.iter_mut().for_each(clean),
        _ => {}
    }
}

/// `TOLLGATE_BLESS=1 cargo test -p tollgate --all-features schema` writes the file.
#[test]
fn the_checked_in_schema_is_that_of_the_fields() {
    let mut schema = schema_for!(FileFields).to_value();
    clean(&mut schema);
    let mut current = serde_json::to_string_pretty(&schema).unwrap();
    current.push('\n');
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/schema.json");
        std::fs::write(file, &current).unwrap();
        return;
    }
    assert_eq!(RuleFile::json_schema(), current, "run this test with TOLLGATE_BLESS=1");
}

#[test]
fn the_schema_has_each_field_with_its_description() {
    let schema: Value = serde_json::from_str(RuleFile::json_schema()).unwrap();
    let rule = &schema["$defs"]["Rule"];
    for (field, _) in super::tests::files::values() {
        assert!(rule["properties"][field]["description"].is_string(), "{field}: {rule:#}");
    }
    assert_eq!(rule["required"], json!(["name", "by"]));
    assert_eq!(rule["additionalProperties"], json!(false));
}
