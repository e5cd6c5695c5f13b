//! The types of values in a file: texts, numbers, lists and tables.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use tollgate_core::{Quota, Share, TimeSpan};

/// A type that a file writes as a string.
pub(super) trait InText: FromStr<Err: fmt::Display> + fmt::Display {
    const EXAMPLE: &'static str;
}

impl InText for TimeSpan {
    const EXAMPLE: &'static str = "5s";
}

impl InText for Share {
    const EXAMPLE: &'static str = "1/2";
}

/// The name of a closure in the registry.
impl InText for String {
    const EXAMPLE: &'static str = "name";
}

/// The longest of these texts, in bytes. Errors quote them.
const LONGEST: usize = 1_024;

/// A value that is a string in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AsText<T>(pub(super) T);

/// Units from 0 to [`Quota::MAX_UNITS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Units(pub(super) u64);

/// A number, or a string.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum UnitsOr<T> {
    Units(Units),
    Value(T),
}

impl<T: fmt::Display> fmt::Display for UnitsOr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitsOr::Units(units) => units.0.fmt(f),
            UnitsOr::Value(value) => value.fmt(f),
        }
    }
}

/// A string, or a list of strings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

/// A table with names of its own, each once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamedValues<V>(pub(super) Vec<(String, V)>);

impl<T: InText> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for Units {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<T: InText> Serialize for UnitsOr<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            UnitsOr::Units(units) => units.serialize(serializer),
            UnitsOr::Value(value) => serializer.collect_str(value),
        }
    }
}

impl<T: InText> Serialize for OneOrMany<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => serializer.collect_str(one),
            many => serializer.collect_seq(many.iter().map(ToString::to_string)),
        }
    }
}

impl<V: Serialize> Serialize for NamedValues<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// A value that a file writes as a string, for `with` of serde.
pub(super) mod text {
    use super::{AsText, Deserialize, Deserializer, InText, Serializer, fmt};

    pub(in crate::config) fn serialize<T: fmt::Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(in crate::config) fn deserialize<'de, T: InText, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        AsText::deserialize(deserializer).map(|AsText(value)| value)
    }
}

/// A string, or a list of them, for `with` of serde.
pub(super) mod one_or_many {
    use super::{Deserialize, Deserializer, InText, OneOrMany, Serialize, Serializer};

    pub(in crate::config) fn serialize<T: InText + Clone, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        OneOrMany(values.to_vec()).serialize(serializer)
    }

    pub(in crate::config) fn deserialize<'de, T: InText, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        OneOrMany::deserialize(deserializer).map(|OneOrMany(values)| values)
    }
}

pub(super) fn text_if_any<T: fmt::Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

pub(super) fn units_by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, u64>, D::Error> {
    let NamedValues(values) = NamedValues::<Units>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, Units(units))| (name, units)).collect())
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads values of any of these types.
struct AnyValue<T>(PhantomData<T>);

/// What the forms of a type are made into.
trait Forms: Sized {
    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result;

    fn of_units<E: de::Error>(units: Units) -> Result<Self, E> {
        Err(de::Error::invalid_type(de::Unexpected::Unsigned(units.0), &AnyValue::<Self>(PhantomData)))
    }

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Err(de::Error::invalid_type(de::Unexpected::Str(text), &AnyValue::<Self>(PhantomData)))
    }

    fn of_list<'de, A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(de::Error::invalid_type(de::Unexpected::Seq, &AnyValue::<Self>(PhantomData)))
    }
}

impl<'de, T: Forms> Visitor<'de> for AnyValue<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::expecting(f)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        match number {
            ..=Quota::MAX_UNITS => T::of_units(Units(number)),
            _ => Err(de::Error::invalid_value(de::Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(de::Error::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::of_text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::of_list(list)
    }
}

const UNITS: &str = "a whole number from 0 to 1099511627776";

fn read<T: InText, E: de::Error>(text: &str) -> Result<T, E> {
    if text.len() > LONGEST {
        let length = text.len();
        return Err(de::Error::custom(format_args!(
            "a text of {length} bytes is too long: use at most {LONGEST}"
        )));
    }
    text.parse().map_err(|error: T::Err| match error.to_string() {
        names_value if names_value.starts_with('"') => de::Error::custom(names_value),
        reason => de::Error::custom(format_args!("{text:?}: {reason}")),
    })
}

impl<T: InText> Forms for AsText<T> {
    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string such as {:?}", T::EXAMPLE)
    }

    fn of_text<E: de::Error>(text: &str) -> Result<AsText<T>, E> {
        read(text).map(AsText)
    }
}

impl Forms for Units {
    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(UNITS)
    }

    fn of_units<E: de::Error>(units: Units) -> Result<Units, E> {
        Ok(units)
    }
}

impl<T: InText> Forms for UnitsOr<T> {
    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNITS}, or a string such as {:?}", T::EXAMPLE)
    }

    fn of_units<E: de::Error>(units: Units) -> Result<UnitsOr<T>, E> {
        Ok(UnitsOr::Units(units))
    }

    fn of_text<E: de::Error>(text: &str) -> Result<UnitsOr<T>, E> {
        read(text).map(UnitsOr::Value)
    }
}

impl<T: InText> Forms for OneOrMany<T> {
    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string such as {:?}, or a list of them", T::EXAMPLE)
    }

    fn of_text<E: de::Error>(text: &str) -> Result<OneOrMany<T>, E> {
        read(text).map(|one| OneOrMany(vec![one]))
    }

    fn of_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<OneOrMany<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(AsText(value)) = list.next_element()? {
            values.push(value);
        }
        match values.is_empty() {
            true => Err(de::Error::invalid_length(0, &AnyValue::<OneOrMany<T>>(PhantomData))),
            false => Ok(OneOrMany(values)),
        }
    }
}

impl<'de, V: Deserialize<'de>> Visitor<'de> for AnyValue<NamedValues<V>> {
    type Value = NamedValues<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of names and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedValues<V>, A::Error> {
        let (mut values, mut names) = (Vec::<(String, V)>::new(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format_args!("duplicate field `{name}`")));
            }
            values.push((name, map.next_value()?));
        }
        // TOML keeps no order of a table, so files that differ by it alone are equal.
        values.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(NamedValues(values))
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for NamedValues<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NamedValues<V>, D::Error> {
        deserializer.deserialize_map(AnyValue(PhantomData::<NamedValues<V>>))
    }
}

/// Reads a type by its forms.
macro_rules! value {
    ($type:ty $(, $bound:ident)?) => {
        impl<'de, $($bound: InText)?> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(AnyValue(PhantomData::<$type>))
            }
        }
    };
}

value!(AsText<T>, T);
value!(Units);
value!(UnitsOr<T>, T);
value!(OneOrMany<T>, T);
