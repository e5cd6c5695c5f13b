//! The rules that the server has now: those of the command line, or those of a file that it
//! follows.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::config::{
    CostConfig, ExemptionText, KeyExpression, KeyPart, Mode, Registry, RuleConfig, RuleFile,
};
use tollgate::watch::WatchedFile;
use tollgate::{Head, Key, MissingKey, Policy, RateLimitLayer, Rule, SetupError};

use crate::login;
use crate::registry::{ESTIMATE, NOT_LOGIN};
use crate::store::AnyStore;
use crate::words::in_words;

/// The keys that are remembered of each rule.
const MOST_KEYS: usize = 50;

/// A rule, and what the banner and the page say of it.
#[derive(Clone, Debug)]
pub(crate) struct LiveRule {
    rule: Rule,
    /// The rule in words.
    pub(crate) words: String,
    /// The headers of a request that has its key, as `name: value`.
    headers: Vec<String>,
    pub(crate) uses_addresses: bool,
    pub(crate) in_shadow: bool,
    latest_keys: LatestKeys,
}

impl LiveRule {
    /// A rule that was made of this.
    pub(crate) fn new(rule: Rule, config: &RuleConfig) -> LiveRule {
        let refuses = config.missing_key == MissingKey::Refuse;
        let headers = if refuses { headers_of(&config.by) } else { Vec::new() };
        let uses_addresses = config.by.0.iter().flatten().any(|part| *part == KeyPart::Ip);
        let words = in_words(config) + routes_in_words(config);
        let (in_shadow, latest_keys) = (config.mode == Mode::Shadow, LatestKeys::default());
        LiveRule { rule, words, headers, uses_addresses, in_shadow, latest_keys }
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    pub(crate) fn name(&self) -> &str {
        self.policy().name()
    }

    pub(crate) fn policy(&self) -> &Policy {
        self.rule.policy()
    }

    pub(crate) fn blocks(&self) -> bool {
        self.policy().numbers().denials_until_block().is_some()
    }

    /// The key of a request, if the page shows keys of this rule.
    pub(crate) fn shown_key(&self, head: &Head<'_>) -> Option<Key> {
        if self.blocks() || self.policy().is_in_flight() { self.rule.key(head) } else { None }
    }

    /// The keys that were seen last, or that were denied last if the rule blocks.
    pub(crate) fn latest_keys(&self) -> &LatestKeys {
        &self.latest_keys
    }
}

/// What the closures of this server do in a rule.
fn routes_in_words(config: &RuleConfig) -> &'static str {
    let not_login = ExemptionText::Named(NOT_LOGIN.to_owned());
    if matches!(&config.cost, Some(CostConfig::Reserved { reserve, .. }) if reserve == ESTIMATE) {
        "; POST /chat and /stream reserve an estimate and settle it"
    } else if config.exempt == [not_login] {
        "; only failures of POST /login count"
    } else {
        ""
    }
}

/// Returns the headers that give a request the keys of all rules, as `name: value`.
pub(crate) fn needed_headers(rules: &[LiveRule]) -> Vec<&str> {
    let mut needed: Vec<&str> = Vec::new();
    for header in rules.iter().flat_map(|rule| &rule.headers) {
        if !needed.contains(&header.as_str()) {
            needed.push(header);
        }
    }
    needed
}

/// The headers of the alternative that needs the fewest.
fn headers_of(by: &KeyExpression) -> Vec<String> {
    let needed = |parts: &Vec<KeyPart>| parts.iter().filter_map(demo_header).collect();
    by.0.iter().map(needed).min_by_key(Vec::len).unwrap_or_default()
}

fn demo_header(part: &KeyPart) -> Option<String> {
    match part {
        KeyPart::Bearer => Some("authorization: Bearer demo".to_owned()),
        // User `demo`, with an empty password.
        KeyPart::BasicUser => Some("authorization: Basic ZGVtbzo=".to_owned()),
        KeyPart::Header(name) => Some(format!("{name}: demo")),
        KeyPart::Cookie(name) => Some(format!("cookie: {name}=demo")),
        _ => None,
    }
}

/// The keys of a rule that were seen last, the latest first. A store does not list its keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatestKeys(Arc<Mutex<VecDeque<Key>>>);

impl LatestKeys {
    /// Moves a key to the front. The oldest makes room for a new one.
    pub(crate) fn note(&self, key: Key) {
        let mut keys = lock(&self.0);
        match keys.iter().position(|known| *known == key) {
            Some(known) => _ = keys.remove(known),
            None => keys.truncate(MOST_KEYS - 1),
        }
        keys.push_front(key);
    }

    pub(crate) fn all(&self) -> VecDeque<Key> {
        lock(&self.0).clone()
    }
}

/// The rules of the layer, which a file may replace.
#[derive(Clone, Debug)]
pub(crate) struct LiveRules(Arc<Mutex<RuleLists>>);

#[derive(Debug)]
struct RuleLists {
    used: Arc<[LiveRule]>,
    /// Those of the file that were read last, until the layer has them.
    read: Option<Vec<LiveRule>>,
}

impl LiveRules {
    /// Rules that stay.
    pub(crate) fn fixed(rules: Vec<LiveRule>) -> LiveRules {
        LiveRules(Arc::new(Mutex::new(RuleLists { used: rules.into(), read: None })))
    }

    /// Reads a file like [`Registry::open`], and keeps what else it says of its rules.
    pub(crate) fn open(path: &Path, registry: Registry) -> Result<(LiveRules, WatchedFile), SetupError> {
        let rules = LiveRules::fixed(Vec::new());
        let lists = Arc::clone(&rules.0);
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let file = WatchedFile::open(path, move |text| {
            let file = if is_json { RuleFile::from_json(text) } else { RuleFile::from_toml(text) };
            let file = file.map_err(|error| error.to_string())?;
            if file.rules().iter().any(|rule| rule.name == login::TURN) {
                return Err(format!("rule {:?} has a meaning of its own: choose another name", login::TURN));
            }
            let rules = registry.rules(&file).map_err(|error| error.to_string())?;
            let read = rules.iter().cloned().zip(file.rules());
            lock(&lists).read = Some(read.map(|(rule, config)| LiveRule::new(rule, config)).collect());
            Ok(rules)
        })?;
        lock(&rules.0).use_read();
        Ok((rules, file))
    }

    /// Returns the rules, in their order.
    pub(crate) fn now(&self) -> Arc<[LiveRule]> {
        Arc::clone(&lock(&self.0).used)
    }

    /// Follows the layer, once it has the rules that were read last. It may refuse them.
    pub(crate) fn follow(&self, layer: &RateLimitLayer<AnyStore>) {
        let mut lists = lock(&self.0);
        let Some(read) = &lists.read else { return };
        let used = layer.limiter().policies();
        if read.iter().all(|rule| used.contains(rule.policy())) {
            lists.use_read();
        }
    }
}

impl RuleLists {
    fn use_read(&mut self) {
        let Some(mut read) = self.read.take() else { return };
        for rule in &mut read {
            if let Some(earlier) = self.used.iter().find(|earlier| earlier.name() == rule.name()) {
                rule.latest_keys = earlier.latest_keys.clone();
            }
        }
        self.used = read.into();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
