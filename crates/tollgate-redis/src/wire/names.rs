//! The names of keys in Redis.
//!
//! `prefix:layout:{key}:policy`, such as `tollgate:2:{@192.0.2.1}:api~gcra~1m`. `redis-cli` can
//! read them. In a Cluster, the text in braces decides the hash slot, so one node decides all
//! policies of a key in one step.

use std::fmt::Write;
use std::ops::Deref;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use tollgate_core::{Algorithm, Key, Policy};

use super::layout::SlidingLogLayout;
use super::script::Part;

/// The version of the stored form. It changes with the meaning of stored values, so that two
/// versions of tollgate never misread each other's.
const LAYOUT: &str = "2";

/// The suffix of names whose value is a log of runs. In version 1, earlier forms of logs and rings
/// had no suffix, or `~runs`. A new suffix resets logs and rings alone, a new `LAYOUT` all states.
const LOG_FORM: &str = "~sums";

/// The same in the other layout of logs.
const SORTED_SET_FORM: &str = "~sums~sorted-set";

/// The suffix of names whose value is the end of a window of a calendar, and its units. Earlier
/// versions stored the start under the name without it, which calendar_window.lua reads.
const CALENDAR_FORM: &str = "~ends";

/// The suffix of names whose value is the usage of a key. No scope of a policy ends with it.
const USAGE_FORM: &str = "~usage";

/// The suffixes of names whose values are the jobs of a key. No scope of a policy ends with one.
const JOBS_FORMS: [&str; 2] = ["~jobs", "~attempts"];

/// The last suffix of all names of rules in shadow. No other name ends with it.
const SHADOW_FORM: &str = "~shadow";

/// Most names are no longer.
const USUAL: usize = 64;

/// A key as it waits for its call: itself, or the digest of a long one.
///
/// The caller makes it before it takes any lock, since a request may carry a key of any length.
/// What follows costs the same for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoundedKey {
    /// Of at most [`Key::MAX_TEXT`] bytes.
    Whole(Key),
    Hashed(KeyDigest),
}

/// The first 128 bits of a digest.
type KeyDigest = [u8; 16];

impl BoundedKey {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            BoundedKey::Whole(key) => key.as_encoded(),
            BoundedKey::Hashed(digest) => digest,
        }
    }
}

pub(crate) struct KeyNames {
    /// `prefix:layout:{`.
    head: String,
    secret: Option<Hmac<Sha256>>,
    /// Tells digests by this secret from those by others.
    maker: u64,
    pub(crate) log: SlidingLogLayout,
    /// The suffix of all names of states and totals.
    suffix: &'static str,
}

impl KeyNames {
    pub(crate) fn new(prefix: &str, secret: Option<&[u8]>, log: SlidingLogLayout) -> KeyNames {
        // HMAC accepts a key of any length.
        let secret: Option<Hmac<Sha256>> = secret.and_then(|secret| Hmac::new_from_slice(secret).ok());
        let maker = secret.as_ref().map_or(0, |secret| {
            let number = secret.clone().chain_update("maker").finalize().into_bytes();
            u64::from_be_bytes(std::array::from_fn(|at| number[at]))
        });
        KeyNames { head: format!("{prefix}:{LAYOUT}:{{"), secret, maker, log, suffix: "" }
    }

    /// The names of the same keys for rules in shadow.
    pub(crate) fn in_shadow(&self) -> KeyNames {
        let KeyNames { head, secret, maker, log, .. } = self;
        let (head, secret) = (head.clone(), secret.clone());
        KeyNames { head, secret, maker: *maker, log: *log, suffix: SHADOW_FORM }
    }

    /// A key, to be named when its call is written.
    pub(crate) fn bounded(&self, key: &Key) -> BoundedKey {
        match key.as_encoded().len() {
            ..=Key::MAX_TEXT => BoundedKey::Whole(key.clone()),
            _ => BoundedKey::Hashed(self.digest(key)),
        }
    }

    /// The text of a key in its names, of at most [`Key::MAX_TEXT`] bytes.
    pub(crate) fn text(&self, key: &BoundedKey) -> String {
        let mut text = String::with_capacity(USUAL);
        self.push_text(&mut text, key);
        text
    }

    /// Appends the text of a key. That of a long key is a digest after a `~`, and that of the empty
    /// key is `-`: a Cluster ignores empty braces. No other text begins so.
    fn push_text(&self, text: &mut String, key: &BoundedKey) {
        let start = text.len();
        let digest = match key {
            BoundedKey::Whole(key) if key.is_empty() => return text.push('-'),
            BoundedKey::Whole(key) if self.secret.is_none() => {
                // Writing to a text does not fail.
                let _ = key.write_text(text);
                // Each escaped byte is three.
                if text.len() - start <= Key::MAX_TEXT {
                    return;
                }
                text.truncate(start);
                self.digest(key)
            }
            BoundedKey::Whole(key) => self.digest(key),
            BoundedKey::Hashed(digest) => *digest,
        };
        let _ = write!(text, "~{:032x}", u128::from_be_bytes(digest));
    }

    fn digest(&self, key: &Key) -> KeyDigest {
        key.digest_by(self.maker, |encoded| {
            let digest = match &self.secret {
                Some(secret) => secret.clone().chain_update(encoded).finalize().into_bytes(),
                None => Sha256::digest(encoded),
            };
            std::array::from_fn(|at| digest[at])
        })
    }

    /// Appends the name of a key with these parts behind it: `prefix:layout:{key}:form`.
    pub(crate) fn push(&self, name: &mut String, key: &BoundedKey, form: &[&str]) {
        name.push_str(&self.head);
        self.push_text(name, key);
        name.push_str("}:");
        form.iter().for_each(|part| name.push_str(part));
    }

    fn named(&self, key: &BoundedKey, form: &[&str]) -> String {
        let mut name = String::with_capacity(USUAL);
        self.push(&mut name, key, form);
        name
    }

    /// The hash slot of a key in a Cluster: all policies of it share one.
    pub(crate) fn hash_slot(&self, key: &BoundedKey) -> u16 {
        hash_slot_of(self.text(key).as_bytes())
    }

    /// The name of the pages of usage of a minute. No key has this text.
    pub(crate) fn of_usage(&self, minute: u64) -> Name {
        Name::from(format!("{}usage}}:{minute}", self.head))
    }

    /// The text behind a key in the name of its usage under the policy with this name, in parts.
    pub(crate) fn form_of_total<'a>(&self, policy: &'a str) -> [&'a str; 3] {
        [policy, USAGE_FORM, self.suffix]
    }

    /// The name of a key's usage under the policy with this name.
    pub(crate) fn of_total(&self, key: &BoundedKey, policy: &str) -> Name {
        Name::from(self.named(key, &self.form_of_total(policy)))
    }

    /// The names of a key's jobs under the policy with this name.
    pub(crate) fn of_jobs(&self, key: &BoundedKey, policy: &str) -> [Name; 2] {
        JOBS_FORMS.map(|form| Name::from(self.named(key, &[policy, form])))
    }

    /// The texts before and behind a key in the names of its usage.
    pub(crate) fn around_totals(&self, policy: &str) -> (&str, String) {
        (&self.head, format!("}}:{}", self.form_of_total(policy).concat()))
    }

    /// The text behind a key in the name of its state under a policy, in parts.
    pub(crate) fn form<'a>(&self, policy: &'a Policy) -> [&'a str; 3] {
        // A policy's name may contain any printable character. Behind the braces nothing is parsed.
        [policy.scope(), form_of(Part::of(policy, self.log)), self.suffix]
    }

    /// The name of a key's state under a policy.
    pub(crate) fn of(&self, key: &BoundedKey, policy: &Policy) -> Name {
        Name::from(self.named(key, &self.form(policy)))
    }

    /// The name under which earlier versions stored a key's state under a policy, if the scripts
    /// still read it.
    pub(crate) fn of_earlier(&self, key: &BoundedKey, policy: &Policy) -> Option<Name> {
        let is_calendar = matches!(policy.algorithm(), Algorithm::CalendarWindow { .. });
        is_calendar.then(|| Name::from(self.named(key, &[policy.scope()])))
    }

    /// The policy whose names have this text behind the key. `None` if it has another form.
    pub(crate) fn policy(&self, text: &[u8]) -> Option<Policy> {
        let text = str::from_utf8(text).ok()?;
        let form = [SORTED_SET_FORM, LOG_FORM, CALENDAR_FORM]
            .into_iter()
            .find(|form| text.ends_with(form))
            .unwrap_or("");
        let policy = Policy::from_scope(text.strip_suffix(form)?)?;
        (form_of(Part::find(&policy, self.log)?) == form).then_some(policy)
    }

    /// The text behind the key in the name of one of its states. `None` for other names.
    pub(crate) fn of_state<'a>(&self, key: &BoundedKey, name: &'a [u8]) -> Option<&'a [u8]> {
        let head = self.named(key, &[]);
        let text = name.strip_prefix(head.as_bytes())?.strip_suffix(self.suffix.as_bytes())?;
        let mut others = [USAGE_FORM, SHADOW_FORM].into_iter().chain(JOBS_FORMS);
        (!others.any(|form| text.ends_with(form.as_bytes()))).then_some(text)
    }

    /// A pattern that matches all names of a key.
    pub(crate) fn pattern_of(&self, key: &BoundedKey) -> String {
        escaped(&self.named(key, &[])) + "*"
    }
}

/// The suffix of names whose values have the form of this part.
fn form_of(part: Part) -> &'static str {
    match part {
        Part::SlidingLogSortedSet => SORTED_SET_FORM,
        Part::CalendarWindow => CALENDAR_FORM,
        part if part.is_log() => LOG_FORM,
        _ => "",
    }
}

/// A pattern that matches the text itself.
pub(crate) fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for sign in text.chars() {
        if matches!(sign, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(sign);
    }
    pattern
}

/// The name of a key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(Vec<u8>);

impl From<String> for Name {
    fn from(name: String) -> Name {
        Name(name.into_bytes())
    }
}

impl Name {
    /// A name that Redis has listed.
    pub(crate) fn listed(bytes: &[u8]) -> Name {
        Name(bytes.to_vec())
    }

    /// The hash slot in a Cluster, by the text in the first braces.
    pub(crate) fn hash_slot(&self) -> u16 {
        let find = |sign: u8, from: usize| self[from..].iter().position(|byte| *byte == sign);
        let tag =
            find(b'{', 0).and_then(|open| find(b'}', open + 1).map(|length| &self[open + 1..][..length]));
        hash_slot_of(tag.unwrap_or(self))
    }
}

pub(crate) fn hash_slot_of(tag: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag) % 16_384
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Quota;

    use super::*;

    fn names(secret: Option<&[u8]>) -> KeyNames {
        KeyNames::new("tollgate", secret, SlidingLogLayout::List)
    }

    fn text(names: &KeyNames, key: &Key, policy: &Policy) -> String {
        String::from_utf8(names.of(&names.bounded(key), policy).to_vec()).unwrap()
    }

    fn hash_slot(text: &str) -> u16 {
        Name::listed(text.as_bytes()).hash_slot()
    }

    #[test]
    fn names_are_readable_and_braces_in_keys_are_escaped() {
        let policy = Policy::new("api", Quota::per_minute(100));
        let address = Key::network("192.0.2.1".parse().unwrap(), 64);
        assert_eq!(text(&names(None), &address, &policy), "tollgate:2:{@192.0.2.1}:api~gcra~1m");
        let hostile = Key::from("}:x{");
        assert_eq!(text(&names(None), &hostile, &policy), "tollgate:2:{=%7D%3Ax%7B}:api~gcra~1m");
    }

    #[test]
    fn long_keys_are_hashed_and_all_keys_with_a_secret() {
        let policy = Policy::new("api", Quota::per_minute(100));
        let long = text(&names(None), &Key::from("x".repeat(500)), &policy);
        let other = text(&names(None), &Key::from("x".repeat(501)), &policy);
        assert!(long.starts_with("tollgate:2:{~") && long.len() < 80, "{long}");
        assert_ne!(long, other);
        let secret = text(&names(Some(b"secret")), &Key::from("alice"), &policy);
        assert!(secret.starts_with("tollgate:2:{~") && !secret.contains("alice"), "{secret}");
        assert_ne!(secret, text(&names(Some(b"another")), &Key::from("alice"), &policy));
        // A key that looks like a digest does not collide with one.
        let digest = &long["tollgate:2:{".len()..long.find('}').unwrap()];
        assert_ne!(text(&names(None), &Key::from(digest), &policy), long);
    }

    /// A slot is renewed as long as it is held, and its key may have 390 kB.
    #[test]
    fn a_long_key_is_hashed_once_for_each_secret() {
        let key = Key::from("x".repeat(390_000));
        let of = |secret: Option<&[u8]>, key: &Key| names(secret).bounded(key);
        let first = of(Some(b"secret"), &key);
        let again = key.digest_by(names(Some(b"secret")).maker, |_| panic!("it is hashed again"));
        assert_eq!(first, BoundedKey::Hashed(again));
        for other in [None, Some(&b"another"[..])] {
            assert_ne!(of(other, &key), first);
            assert_eq!(of(other, &key), of(other, &Key::from("x".repeat(390_000))));
        }
    }

    /// Each escaped byte is three. The bound holds for what is stored, and for what a caller sends.
    #[test]
    fn no_key_has_a_longer_text_than_the_longest() {
        for sign in ["x", ",", "\u{e9}"] {
            for secret in [None, Some(&b"secret"[..])] {
                let names = names(secret);
                let keys: Vec<BoundedKey> =
                    (0..300).map(|length| names.bounded(&Key::from(sign.repeat(length)))).collect();
                assert!(keys.iter().all(|key| key.as_bytes().len() <= Key::MAX_TEXT));
                let texts: Vec<String> = keys.iter().map(|key| names.text(key)).collect();
                assert!(texts.iter().all(|text| text.len() <= Key::MAX_TEXT));
                let shorter = texts.windows(2).filter(|pair| pair[0] == pair[1]);
                assert_eq!(shorter.count(), 0, "{sign:?}: two keys with one text");
            }
        }
    }

    #[test]
    fn the_layouts_of_a_log_do_not_share_a_key() {
        let policy = Policy::new("api", Quota::per_minute(100)).with_algorithm(Algorithm::SLIDING_LOG);
        let set = KeyNames::new("t", None, SlidingLogLayout::SortedSet);
        assert_eq!(text(&set, &Key::global(), &policy), "t:2:{*}:api~sliding-log~1m~sums~sorted-set");
        assert_eq!(text(&names(None), &Key::global(), &policy), "tollgate:2:{*}:api~sliding-log~1m~sums");
    }

    #[test]
    fn a_policy_is_found_by_what_its_name_has_behind_the_key() {
        let set = KeyNames::new("t", None, SlidingLogLayout::SortedSet);
        let scope = |names: &KeyNames, text: &str| Some(names.policy(text.as_bytes())?.scope().to_owned());
        for (text, in_list, in_set) in [
            ("api~gcra~1m", true, true),
            ("api~sliding-buckets.7~1d~sums", true, true),
            ("api~sliding-log~1d~sums", true, false),
            ("api~sliding-log~1d~sums~sorted-set", false, true),
            ("api~sliding-log~1d", false, false),
            ("api~calendar-window~31d~ends", true, true),
            ("api~calendar-window~31d", false, false),
            ("api~block", true, true),
            ("api~gcra~1m~sums", false, false),
            ("api~sliding-buckets.7~1d~sums~sorted-set", false, false),
            ("strange", false, false),
        ] {
            let plain =
                text.trim_end_matches("~sorted-set").trim_end_matches("~sums").trim_end_matches("~ends");
            assert_eq!(scope(&names(None), text), in_list.then(|| plain.to_owned()), "{text}");
            assert_eq!(scope(&set, text), in_set.then(|| plain.to_owned()), "{text}");
        }
        assert_eq!(names(None).policy(b"\xff~gcra~1m"), None);
    }

    #[test]
    fn only_states_of_the_key_are_found_by_its_pattern() {
        let names = names(None);
        let key = names.bounded(&Key::global());
        assert_eq!(names.pattern_of(&key), "tollgate:2:{\\*}:*");
        assert_eq!(names.of_state(&key, b"tollgate:2:{*}:api~gcra~1m"), Some(&b"api~gcra~1m"[..]));
        assert_eq!(names.of_state(&key, b"tollgate:2:{*}:api~usage"), None);
        assert_eq!(names.of_state(&key, b"tollgate:2:{=a}:api~gcra~1m"), None);
    }

    #[test]
    fn names_of_rules_in_shadow_are_apart() {
        let (names, policy) = (names(None), Policy::new("api", Quota::per_minute(100)));
        let in_shadow = names.in_shadow();
        let key = names.bounded(&Key::global());
        assert_eq!(text(&in_shadow, &Key::global(), &policy), "tollgate:2:{*}:api~gcra~1m~shadow");
        assert_eq!(&*in_shadow.of_total(&key, "api"), b"tollgate:2:{*}:api~usage~shadow");
        for (text, is_state, is_in_shadow) in [
            ("tollgate:2:{*}:api~gcra~1m", true, false),
            ("tollgate:2:{*}:api~gcra~1m~shadow", false, true),
            ("tollgate:2:{*}:api~usage", false, false),
            ("tollgate:2:{*}:api~usage~shadow", false, false),
        ] {
            let text = text.as_bytes();
            assert_eq!(names.of_state(&key, text).is_some(), is_state);
            assert_eq!(in_shadow.of_state(&key, text), is_in_shadow.then_some(&b"api~gcra~1m"[..]));
        }
    }

    #[test]
    fn a_pattern_matches_special_characters_as_they_are() {
        assert_eq!(escaped("t:2:{a?[b]*\\"), "t:2:{a\\?\\[b\\]\\*\\\\");
    }

    #[test]
    fn the_slot_is_that_of_the_key_in_braces() {
        // The reference values of the cluster specification.
        assert_eq!(hash_slot("123456789"), 12_739);
        assert_eq!(hash_slot("tollgate:2:{123456789}:api~gcra~1m"), 12_739);
        assert_eq!(hash_slot("x:{123456789}:a{b}"), hash_slot("{123456789}"));
    }
}
