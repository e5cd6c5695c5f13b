//! Tables of a file. A list is never read as a table by the order of its values, and `null` does
//! not stand for a field that is absent.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde::ser::{Serialize, Serializer};

use super::block::BlockConfig;
use super::file::FileFields;
use super::leaving::LeavingConfig;
use super::rule_fields::{RuleFields, TiersFields};
use super::when::When;

/// Reads a type, whose derived functions are those of `serde(remote = "Self")`.
macro_rules! table {
    ($type:ident, $expecting:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct FieldsVisitor;

                impl<'de> Visitor<'de> for FieldsVisitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        $type::deserialize(MapAccessDeserializer::new(WithoutNull(map)))
                    }
                }

                deserializer.deserialize_map(FieldsVisitor)
            }
        }
    };
}

/// Reads and writes such a type.
macro_rules! written_table {
    ($type:ident, $expecting:literal) => {
        table!($type, $expecting);

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $type::serialize(self, serializer)
            }
        }
    };
}

table!(FileFields, "a table with the list rule");
written_table!(RuleFields, "a table with name, quota, by and others");
written_table!(When, "a table such as { path = \"/api/*\" }");
written_table!(TiersFields, "a table such as { by = \"plan\", quotas = { pro = \"600/min\" } }");
written_table!(LeavingConfig, "a table such as { by = \"class\", units = { batch = 200 } }");
written_table!(BlockConfig, "a table such as { after = 20, for = \"15m\" }");

/// The same map, a table, a value or its reader, where `null` is a value like any other.
struct WithoutNull<T>(T);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutNull<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(WithoutNull(seed))
    }
}

impl<'de, V: DeserializeSeed<'de>> DeserializeSeed<'de> for WithoutNull<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.deserialize(WithoutNull(deserializer))
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithoutNull<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    /// A field that is there has a value.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
