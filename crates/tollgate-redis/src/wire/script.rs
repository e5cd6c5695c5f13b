//! Joins the scripts from the files in `lua/`.
//!
//! Each algorithm has its own file. A loaded script consists of the clock, the numbers, the
//! algorithms that its calls need, and the main part. Redis runs the whole text on each call, so an
//! algorithm that is not needed would cost time.

use std::sync::OnceLock;

use tollgate_core::{Algorithm, Policy};

use super::layout::SlidingLogLayout;

/// The text of a file in `lua/`.
macro_rules! lua {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $file))
    };
}

/// An algorithm's file in `lua/`, in the order in which they are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Gcra,
    LeakyBucket,
    FixedWindow,
    CalendarWindow,
    SlidingWindow,
    SlidingLogList,
    SlidingLogSortedSet,
    SlidingBuckets,
    InFlight,
    Block,
}

impl Part {
    const ALL: [Part; 10] = [
        Part::Gcra,
        Part::LeakyBucket,
        Part::FixedWindow,
        Part::CalendarWindow,
        Part::SlidingWindow,
        Part::SlidingLogList,
        Part::SlidingLogSortedSet,
        Part::SlidingBuckets,
        Part::InFlight,
        Part::Block,
    ];

    /// The part that decides a policy. `None` for an algorithm of a later version of the core, for
    /// which there is no script here.
    pub(crate) fn find(policy: &Policy, log: SlidingLogLayout) -> Option<Part> {
        Some(match (policy.algorithm(), log) {
            (Algorithm::Gcra, _) => Part::Gcra,
            (Algorithm::LeakyBucket { .. }, _) => Part::LeakyBucket,
            (Algorithm::FixedWindow { .. }, _) => Part::FixedWindow,
            (Algorithm::CalendarWindow { .. }, _) => Part::CalendarWindow,
            (Algorithm::SlidingWindow, _) => Part::SlidingWindow,
            (Algorithm::SlidingBuckets { .. }, _) => Part::SlidingBuckets,
            (Algorithm::InFlight, _) => Part::InFlight,
            (Algorithm::Block, _) => Part::Block,
            (Algorithm::SlidingLog { .. }, SlidingLogLayout::List) => Part::SlidingLogList,
            (Algorithm::SlidingLog { .. }, SlidingLogLayout::SortedSet) => Part::SlidingLogSortedSet,
            _ => return None,
        })
    }

    /// The part that decides a policy which the store supports.
    pub(crate) fn of(policy: &Policy, log: SlidingLogLayout) -> Part {
        Part::find(policy, log).expect("`RedisStore::supports` refuses policies without a script")
    }

    /// The number by which scripts know the algorithm.
    pub(crate) fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The Lua function that makes the algorithm's policies.
    fn name(self) -> &'static str {
        match self {
            Part::Gcra => "gcra",
            Part::LeakyBucket => "leaky_bucket",
            Part::FixedWindow => "fixed_window",
            Part::CalendarWindow => "calendar_window",
            Part::SlidingWindow => "sliding_window",
            Part::SlidingBuckets => "sliding_buckets",
            Part::SlidingLogList => "sliding_log_list",
            Part::SlidingLogSortedSet => "sliding_log_sorted_set",
            Part::InFlight => "in_flight",
            Part::Block => "block",
        }
    }

    /// Whether the algorithm counts units. Others compute with times alone.
    fn counts_units(self) -> bool {
        !matches!(self, Part::Gcra | Part::LeakyBucket)
    }

    /// Whether the algorithm stores a log of runs.
    pub(crate) fn is_log(self) -> bool {
        matches!(self, Part::SlidingLogList | Part::SlidingLogSortedSet | Part::SlidingBuckets)
    }

    fn text(self) -> &'static str {
        match self {
            Part::Gcra => lua!("gcra.lua"),
            Part::LeakyBucket => lua!("leaky_bucket.lua"),
            Part::FixedWindow => lua!("fixed_window.lua"),
            Part::CalendarWindow => lua!("calendar_window.lua"),
            Part::SlidingWindow => lua!("sliding_window.lua"),
            Part::SlidingBuckets => lua!("sliding_buckets.lua"),
            Part::InFlight => lua!("in_flight.lua"),
            Part::Block => lua!("block.lua"),
            Part::SlidingLogList => lua!("sliding_log_list.lua"),
            Part::SlidingLogSortedSet => lua!("sliding_log_sorted_set.lua"),
        }
    }
}

/// A set of parts, and whether a policy tracks usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts(u16);

impl Parts {
    const TRACKING: u16 = 1 << Part::ALL.len();
    const COUNT: usize = 2 * Parts::TRACKING as usize;

    /// Adds what records the usage of a policy that tracks it.
    pub(crate) fn add_tracking(&mut self) {
        self.0 |= Parts::TRACKING;
    }

    pub(crate) fn have_tracking(self) -> bool {
        self.0 & Parts::TRACKING != 0
    }

    pub(crate) fn add(&mut self, part: Part) {
        self.0 |= 1 << part as u8;
    }

    fn has(self, part: Part) -> bool {
        self.0 & (1 << part as u8) != 0
    }

    /// Whether one of them is GCRA or uses it.
    fn have_gcra(self) -> bool {
        self.has(Part::Gcra) || self.has(Part::LeakyBucket)
    }
}

pub(crate) struct Script {
    pub(crate) text: String,
    /// The SHA-1 by which Redis knows the script.
    pub(crate) hash: String,
}

impl Script {
    fn new(text: String) -> Script {
        let hash = bb8_redis::redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }
}

/// The scripts with one main part. Each is joined when it is first needed.
struct ScriptCache(Box<[OnceLock<Script>]>);

impl ScriptCache {
    fn new() -> ScriptCache {
        ScriptCache((0..Parts::COUNT).map(|_| OnceLock::new()).collect())
    }
}

pub(crate) struct Scripts {
    clock: &'static str,
    acquire: ScriptCache,
    refund: ScriptCache,
    usage: ScriptCache,
    usage_page: Script,
    jobs: Script,
}

impl Scripts {
    /// With a manual clock, the first argument of a call is the time. Otherwise the server's clock
    /// decides.
    pub(crate) fn new(has_manual_clock: bool) -> Scripts {
        let clock = if has_manual_clock { lua!("clock_manual.lua") } else { lua!("clock.lua") };
        let [acquire, refund, usage] = std::array::from_fn(|_| ScriptCache::new());
        let usage_page = Script::new(lua!("usage_page.lua").to_owned());
        let jobs = Script::new([clock, lua!("number.lua"), lua!("jobs.lua")].concat());
        Scripts { clock, acquire, refund, usage, usage_page, jobs }
    }

    pub(crate) fn acquire(&self, parts: Parts) -> &Script {
        let whole = if parts.have_gcra() { lua!("gcra_whole.lua") } else { "" };
        let track = if parts.have_tracking() { lua!("track.lua") } else { "" };
        let main = [lua!("decide.lua"), whole, lua!("acquire.lua"), track, lua!("reply.lua")];
        self.cached(&self.acquire, parts, "local refunds, counts = false, false\n", &main)
    }

    pub(crate) fn refund(&self, parts: Parts) -> &Script {
        let untrack = if parts.have_tracking() { lua!("untrack.lua") } else { "" };
        let main = [untrack, lua!("refund.lua"), lua!("reply.lua")];
        self.cached(&self.refund, parts, "local refunds, counts = true, false\n", &main)
    }

    /// The script that counts the units of an interval in a log of this part.
    pub(crate) fn usage(&self, part: Part) -> &Script {
        let mut parts = Parts::default();
        parts.add(part);
        self.cached(&self.usage, parts, "local refunds, counts = false, true\n", &[lua!("usage.lua")])
    }

    /// The script that stores a page of usage.
    pub(crate) fn usage_page(&self) -> &Script {
        &self.usage_page
    }

    /// The script that answers questions about jobs.
    pub(crate) fn jobs(&self) -> &Script {
        &self.jobs
    }

    fn cached<'a>(&self, cache: &'a ScriptCache, parts: Parts, flags: &str, main: &[&str]) -> &'a Script {
        cache.0[usize::from(parts.0)].get_or_init(|| Script::new(self.text(parts, flags, main)))
    }

    /// `flags` say which functions of the algorithms the main part calls. The algorithms are inside
    /// a function, so that they are created only if a key needs them. gcra_whole.lua in the main
    /// part decides most keys.
    fn text(&self, parts: Parts, flags: &str, main: &[&str]) -> String {
        let mut text = [flags, self.clock, lua!("number.lua")].concat();
        text.push_str("local function algorithms()\n");
        text.push_str(lua!("stored.lua"));
        if parts.have_gcra() {
            text.push_str(lua!("exact.lua"));
            text.push_str(lua!("versions.lua"));
            if !parts.has(Part::Gcra) {
                text.push_str(Part::Gcra.text());
            }
        }
        let wanted = || Part::ALL.into_iter().filter(|part| parts.has(*part));
        if wanted().any(Part::counts_units) {
            text.push_str(lua!("count.lua"));
        }
        if wanted().any(Part::is_log) {
            text.push_str(lua!("sliding_log.lua"));
        }
        if parts.has(Part::SlidingBuckets) && !parts.has(Part::SlidingLogList) {
            text.push_str(Part::SlidingLogList.text());
        }
        for part in wanted() {
            text.push_str(part.text());
        }
        text.push_str("return { ensure_end = ensure_end,");
        for part in wanted() {
            text.push_str(&format!(" [{}] = {},", part.number(), part.name()));
        }
        text.push_str(" }\nend\n");
        text.push_str(&main.concat());
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mlua::Lua;

    use super::*;

    /// Every script that a store may load; those of the manual clock with all parts.
    fn all() -> impl Iterator<Item = String> {
        [false, true].into_iter().flat_map(|has_manual_clock| {
            let scripts = Scripts::new(has_manual_clock);
            let first = if has_manual_clock { Parts::COUNT - 1 } else { 0 };
            let sets = (0..).take(Parts::COUNT).skip(first).map(Parts);
            let both = sets.flat_map(|parts| [scripts.acquire(parts), scripts.refund(parts)]);
            let usage = Part::ALL.into_iter().filter(|part| part.is_log()).map(|part| scripts.usage(part));
            let texts = both
                .chain(usage)
                .chain([scripts.usage_page(), scripts.jobs()])
                .map(|script| script.text.clone());
            texts.collect::<Vec<_>>()
        })
    }

    /// The functions of a script in the bytecode of Lua 5.1, on a machine of 64 bits.
    struct Bytecode<'a>(&'a [u8]);

    impl<'a> Bytecode<'a> {
        fn take(&mut self, bytes: usize) -> &'a [u8] {
            self.0.split_off(..bytes).expect("bytecode")
        }

        fn count(&mut self) -> usize {
            u32::from_le_bytes(self.take(4).try_into().unwrap()) as usize
        }

        fn text(&mut self) -> &'a [u8] {
            let bytes = usize::from_le_bytes(self.take(8).try_into().unwrap());
            self.take(bytes)
        }

        fn constant(&mut self) -> &'a [u8] {
            match self.take(1) {
                [0] => &[],
                [1] => self.take(1),
                [3] => self.take(8),
                [4] => self.text(),
                unknown => panic!("a constant of type {unknown:?}"),
            }
        }

        /// Adds the names of globals that a function and those inside it read and write.
        fn globals(&mut self, read: &mut BTreeSet<String>, written: &mut BTreeSet<String>) {
            self.text();
            // The lines, and four numbers of a byte.
            self.take(12);
            let code = self.count();
            let code = self.take(4 * code).chunks(4);
            let code = code.map(|instruction| u32::from_le_bytes(instruction.try_into().unwrap()));
            let constants: Vec<_> = (0..self.count()).map(|_| self.constant()).collect();
            for instruction in code {
                let name = || {
                    let name = constants[(instruction >> 14) as usize];
                    String::from_utf8(name.to_vec()).unwrap().trim_end_matches('\0').to_owned()
                };
                _ = match instruction & 63 {
                    5 => read.insert(name()),
                    7 => written.insert(name()),
                    _ => false,
                };
            }
            (0..self.count()).for_each(|_| self.globals(read, written));
            // For debuggers: the lines of the code, locals and upvalues.
            let lines = self.count();
            self.take(4 * lines);
            for _ in 0..self.count() {
                self.text();
                self.take(8);
            }
            for _ in 0..self.count() {
                self.text();
            }
        }
    }

    #[test]
    fn every_script_compiles_and_uses_only_globals_of_redis() {
        let lua = Lua::new();
        let words = [
            "ARGV", "KEYS", "error", "math", "redis", "string", "struct", "table", "tonumber", "type",
            "unpack",
        ];
        for text in all() {
            let script = lua.load(&text).into_function().unwrap_or_else(|error| panic!("{error}\n{text}"));
            let code = script.dump(true);
            let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
            // Behind the header.
            Bytecode(&code[12..]).globals(&mut read, &mut written);
            if !text.contains("function gcra_whole(") {
                // Only a check that needs GCRA calls it.
                read.remove("gcra_whole");
            }
            read.retain(|name| !words.contains(&name.as_str()));
            assert!(read.is_empty() && written.is_empty(), "reads {read:?}, writes {written:?}:\n{text}");
        }
    }
}
