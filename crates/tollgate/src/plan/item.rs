//! A policy as an item of the field `RateLimit-Policy`.

use bytes::Bytes;
use http::HeaderValue;
use tollgate_core::Policy;

use crate::errors::escaped;
use crate::plan::interned::printable;

// The parameter names of the draft, which may still change.
const QUOTA: &str = ";q=";
const UNIT: &str = ";qu=";
const WINDOW: &str = ";w=";

/// The units that the draft registers. Its third, `request`, is the default.
const WRITTEN_UNITS: [&str; 2] = ["content-bytes", "concurrent-requests"];

/// What stands between two items.
pub(crate) const SEPARATOR: &str = ", ";

/// The value of `RateLimit-Policy`.
pub(crate) fn join<'a>(items: impl Iterator<Item = &'a Item>) -> String {
    let policies: Vec<_> = items.map(|item| item.policy().to_str().unwrap_or_default()).collect();
    policies.join(SEPARATOR)
}

/// A policy's item in `RateLimit-Policy`.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// `"name";q=20;w=2`, or `"name";q=20;qu="content-bytes";w=2`
    policy: HeaderValue,
    /// The length of `"name"`.
    name: u16,
    /// Whether units come back with time. Those of requests in flight do not.
    has_window: bool,
}

impl Item {
    pub(crate) fn new(policy: &Policy, bytes: impl Fn(String) -> Bytes) -> Item {
        let name = escaped(policy.name());
        let quota = policy.quota();
        let seconds = (u128::from(policy.capacity()) * quota.window().as_micros())
            .div_ceil(u128::from(quota.limit()) * 1_000_000)
            .max(1);
        let unit = policy.unit_name().filter(|unit| WRITTEN_UNITS.contains(unit));
        let unit = unit.map(|unit| format!("{UNIT}\"{unit}\"")).unwrap_or_default();
        let has_window = !policy.is_in_flight();
        let window = if has_window { format!("{WINDOW}{seconds}") } else { String::new() };
        let text = format!("\"{name}\"{QUOTA}{}{unit}{window}", policy.capacity());
        // At most 128 characters, each of which may be escaped.
        let name = u16::try_from(name.len() + 2).expect("a policy's name is short");
        Item { policy: printable(bytes(text)), name, has_window }
    }

    /// Whether units come back with time.
    pub(crate) fn has_window(&self) -> bool {
        self.has_window
    }

    /// The whole item.
    pub(crate) fn policy(&self) -> &HeaderValue {
        &self.policy
    }

    /// In a field, which it may be the first of.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.policy.len() + SEPARATOR.len()
    }

    /// `"name"`
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        &self.policy.as_bytes()[..usize::from(self.name)]
    }
}
