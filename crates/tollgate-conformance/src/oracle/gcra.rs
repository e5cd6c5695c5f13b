//! The textbook token bucket, one for each version of a policy: full at a time that each unit moves
//! by window / limit.
//!
//! Times are integers at any rate: they are scaled by the limit of their bucket. Only what versions
//! share is rounded up to a microsecond.

use super::{Mark, Model, Terms, ceil_div};

/// The most versions of which a store keeps the buckets.
const MOST_VERSIONS: usize = 4;

#[derive(Debug)]
pub(super) struct TokenBuckets {
    state: State,
    /// The bucket by which the policy of the last look decides.
    seen: i128,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// When the only bucket is full: microseconds, and a fraction whose denominator is not known.
    One(i128, i128),
    /// What was there before the versions, for one of them, and the buckets of the others.
    Several(Option<i128>, Vec<Bucket>),
}

/// The bucket of a version.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    limit: i128,
    burst: i128,
    window: i128,
    /// When it is full, × limit.
    full: i128,
}

/// Which bucket a version uses.
#[derive(Clone, Copy, Debug)]
enum Use {
    Own(usize),
    /// The one that was there before becomes its own, at this place.
    Former(usize),
    /// A new one, used up, at this place.
    New(usize),
    /// There is no place: it gets the units of another's.
    OfAnother(usize),
}

impl Default for TokenBuckets {
    fn default() -> TokenBuckets {
        TokenBuckets { state: State::One(0, 0), seen: 0 }
    }
}

impl Bucket {
    fn used_up(terms: &Terms, now: i128) -> Bucket {
        let Terms { limit, window, version, .. } = *terms;
        Bucket { limit, burst: version, window, full: now * limit + version * window }
    }

    fn is_of(&self, terms: &Terms) -> bool {
        (self.limit, self.burst) == (terms.limit, terms.version)
    }

    /// How long it takes to fill.
    fn span(&self) -> i128 {
        self.burst * self.window
    }

    fn cut(&mut self, now: i128) {
        let can_owe = 2 * self.span() <= (1 << 52) * self.limit;
        let most = if can_owe { 2 * self.span() } else { self.span() };
        if self.full > now * self.limit + most {
            self.full = now * self.limit + self.span();
        }
    }

    fn charge(&mut self, now: i128, units: i128) {
        let used_up = now * self.limit + self.span();
        if self.full <= used_up {
            self.full = used_up.min(self.full.max(now * self.limit) + units * self.window);
        }
    }

    fn units(&self, now: i128) -> i128 {
        let missing = (self.full - now * self.limit).max(0);
        (self.span() - missing).max(0) / self.window
    }

    /// When it is full, in microseconds.
    fn end(&self) -> i128 {
        ceil_div(self.full, self.limit)
    }
}

impl State {
    /// The only bucket, as a policy reads it: × limit.
    fn one(terms: &Terms, us: i128, fraction: i128) -> i128 {
        let common = greatest_common_divisor(terms.window, terms.limit);
        let parts = terms.limit / common;
        if fraction >= parts { (us + 1) * terms.limit } else { us * terms.limit + fraction * common }
    }

    /// One bucket of this version.
    fn of(terms: &Terms, full: i128) -> State {
        let common = greatest_common_divisor(terms.window, terms.limit);
        State::One(full.div_euclid(terms.limit), full.rem_euclid(terms.limit) / common)
    }

    /// Cuts what a clock that stepped back left too far ahead.
    fn cut(&mut self, terms: &Terms, now: i128) {
        if let State::Several(former, buckets) = self {
            buckets.iter_mut().for_each(|bucket| bucket.cut(now));
            *former = former.filter(|end| *end <= now + terms.furthest());
        }
    }

    /// One bucket, if all are full or if the only one owes nothing.
    fn reduced(self, terms: &Terms, now: i128) -> State {
        let State::Several(former, buckets) = &self else { return self };
        if let (None, [only]) = (former, &buckets[..])
            && only.full <= now * only.limit + only.span()
        {
            return State::of(&Terms { limit: only.limit, ..*terms }, only.full);
        }
        let last = buckets.iter().map(Bucket::end).chain(*former).max().expect("a bucket");
        if last <= now { State::One(last, 0) } else { self }
    }

    /// Cuts one bucket that is of no version.
    fn cut_one(self, terms: &Terms, now: i128) -> State {
        if let State::One(us, fraction) = self
            && ceil_div(State::one(terms, us, fraction), terms.limit) > now + terms.furthest()
        {
            return State::of(terms, Bucket::used_up(terms, now).full);
        }
        self
    }

    /// The state of all versions at `now`.
    fn settled(&self, terms: &Terms, now: i128) -> State {
        let mut state = self.clone();
        state.cut(terms, now);
        state.reduced(terms, now).cut_one(terms, now)
    }

    /// The state with a record, if the only bucket is that of another version.
    fn with_record(self, terms: &Terms, now: i128) -> State {
        if let State::One(us, fraction) = self {
            let (full, used_up) = (State::one(terms, us, fraction), Bucket::used_up(terms, now));
            if full > used_up.full {
                return State::Several(Some(ceil_div(full, terms.limit)), vec![used_up]);
            }
        }
        self
    }
}

fn use_of(former: Option<i128>, buckets: &[Bucket], terms: &Terms, now: i128) -> Use {
    if let Some(own) = buckets.iter().position(|bucket| bucket.is_of(terms)) {
        return Use::Own(own);
    }
    let reach = terms.version * terms.window / terms.limit;
    let is_full = |bucket: &Bucket| bucket.end() <= now;
    let place = match buckets.len() {
        MOST_VERSIONS => buckets.iter().position(is_full),
        fewer => Some(fewer),
    };
    match place {
        Some(place) if former.is_some_and(|end| end <= now + reach) => Use::Former(place),
        Some(place) => Use::New(place),
        None => {
            let span = |at: &usize| buckets[*at].span() / buckets[*at].limit;
            let fits = (0..MOST_VERSIONS).filter(|at| span(at) >= reach).min_by_key(span);
            // The first of the longest.
            Use::OfAnother(fits.or_else(|| (0..MOST_VERSIONS).rev().max_by_key(span)).expect("four"))
        }
    }
}

/// When the bucket is full by which a version decides, × limit.
fn full_of(how: Use, former: Option<i128>, buckets: &[Bucket], terms: &Terms, now: i128) -> i128 {
    let used_up = Bucket::used_up(terms, now).full;
    match how {
        Use::Own(at) => buckets[at].full,
        Use::Former(_) => former.expect("what was there before") * terms.limit,
        Use::New(_) => used_up,
        Use::OfAnother(at) => used_up - buckets[at].units(now).min(terms.version) * terms.window,
    }
}

fn put(buckets: &mut Vec<Bucket>, at: usize, bucket: Bucket) {
    if at < buckets.len() {
        buckets[at] = bucket;
    } else {
        buckets.push(bucket);
    }
}

impl Model for TokenBuckets {
    fn settle(&mut self, terms: &Terms, now: i128) {
        let settled = self.state.settled(terms, now);
        if let (State::One(..), State::One(..)) = (&self.state, &settled) {
            self.state = settled.clone();
        }
        self.seen = match &settled.with_record(terms, now) {
            State::One(us, fraction) => State::one(terms, *us, *fraction),
            State::Several(former, buckets) => {
                full_of(use_of(*former, buckets, terms, now), *former, buckets, terms, now)
            }
        };
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        let missing = (self.seen - t * terms.limit).max(0);
        (terms.burst * terms.window - missing).max(0) / terms.window
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.seen <= t * terms.limit
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        if units == 0 {
            return Mark { at: self.seen, scale: terms.limit };
        }
        let full = self.seen.max(now * terms.limit) + units * terms.window;
        let own = Bucket { full, ..Bucket::used_up(terms, now) };
        let used_up = Bucket::used_up(terms, now).full;
        self.state = match self.state.settled(terms, now).with_record(terms, now) {
            State::One(..) if full <= used_up => State::of(terms, full),
            // Debt.
            State::One(..) => State::Several(None, vec![own]),
            State::Several(former, mut buckets) => {
                let how = use_of(former, &buckets, terms, now);
                for bucket in buckets.iter_mut().filter(|bucket| !bucket.is_of(terms)) {
                    bucket.charge(now, units);
                }
                let more = ceil_div(units * terms.window, terms.limit);
                let former = match how {
                    Use::Former(_) => None,
                    _ => former.map(|end| end.max(now) + more),
                };
                if let Use::Own(at) | Use::Former(at) | Use::New(at) = how {
                    put(&mut buckets, at, own);
                }
                State::Several(former, buckets)
            }
        };
        self.seen = full;
        Mark { at: full, scale: terms.limit }
    }

    fn refuse(&mut self, terms: &Terms, now: i128) {
        self.state.cut(terms, now);
        let reduced = self.state.clone().reduced(terms, now);
        match reduced.clone().cut_one(terms, now).with_record(terms, now) {
            State::Several(former, mut buckets) => {
                if let Use::New(at) = use_of(former, &buckets, terms, now) {
                    put(&mut buckets, at, Bucket::used_up(terms, now));
                }
                self.state = State::Several(former, buckets);
            }
            one if one != reduced => self.state = one,
            State::One(..) => {}
        }
    }

    fn refund(&mut self, terms: &Terms, now: i128, units: i128, mark: Mark) {
        assert_eq!(mark.scale, terms.limit, "a grant is refunded by the policy that granted it");
        // The span between now and the mark has not been refilled yet.
        let owed = (mark.at - now * terms.limit).max(0);
        let span = terms.version * terms.window;
        let most = if terms.can_owe() { 2 * span } else { span };
        // What was beyond a bucket used up was cut when the clock stepped back.
        let forgiven = if owed > most { owed - span } else { 0 };
        let back = (owed.min(units * terms.window).min(terms.horizon()) - forgiven).max(0);
        self.take_back(terms, now, back);
    }

    fn credit(&mut self, terms: &Terms, now: i128, units: i128) {
        // Debt is one more capacity at most.
        let first = units.min(terms.burst);
        for part in [first, (units - first).min(terms.burst)] {
            self.take_back(terms, now, part * terms.window);
        }
    }
}

impl TokenBuckets {
    /// Moves a bucket back by a span, scaled by the limit.
    fn take_back(&mut self, terms: &Terms, now: i128, back: i128) {
        if back == 0 {
            return;
        }
        self.state = match self.state.settled(terms, now) {
            State::One(us, fraction) => State::of(terms, (State::one(terms, us, fraction) - back).max(0)),
            State::Several(former, mut buckets) => {
                let own = buckets.iter_mut().find(|bucket| bucket.is_of(terms));
                let is_own = own.is_some();
                if let Some(own) = own.filter(|own| own.full > now * terms.limit) {
                    own.full = (own.full - back).max(now * terms.limit);
                }
                let rounded = back / terms.limit;
                let pulled_back = |end: i128| if end > now { (end - rounded).max(now) } else { end };
                State::Several(if is_own { former } else { former.map(pulled_back) }, buckets)
            }
        };
        self.settle(terms, now);
    }
}

fn greatest_common_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
