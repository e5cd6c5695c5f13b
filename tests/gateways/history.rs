//! What the journals of all gateways say of each stream.

use std::fs;

use crate::gateways::clients::Visit;
use crate::gateways::fleet::Gateway;
use crate::gateways::plan::POLICIES;

/// When a step took place in the time of Redis: between two times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bracket {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Units that were asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitRequest {
    pub(crate) units: u64,
    pub(crate) at: Bracket,
    pub(crate) is_granted: bool,
}

/// How a charge ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// What it was settled to.
    pub(crate) total: u64,
    /// When the correction began, and when it was over at the latest: [`NEVER`] if that is unknown.
    pub(crate) at: Bracket,
    pub(crate) is_drop: bool,
}

pub(crate) const NEVER: i64 = i64::MAX;

/// The steps of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// Without those that were denied.
    asks: Vec<UnitRequest>,
    pub(crate) chunks: Vec<Bracket>,
    pub(crate) end: Option<End>,
    /// The last step of its gateway.
    gateway_ends: i64,
    pub(crate) denials: usize,
    pub(crate) failures: usize,
    /// The parts of each `Settled`.
    pub(crate) settled: Vec<[u64; 3]>,
}

/// Reads the streams of all visits.
pub(crate) fn read(gateways: &[Gateway], visits: &[Visit]) -> Vec<Stream> {
    let mut streams = vec![Stream::default(); visits.len()];
    for (n, gateway) in gateways.iter().enumerate() {
        let text = fs::read_to_string(&gateway.journal).unwrap();
        // A line may be written just now.
        let lines = text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines();
        let mut reader = Reader { visits, streams: &mut streams, open: Default::default() };
        let end = lines.fold(0, |_, line| reader.step(line, gateway.error));
        let of_gateway = streams.iter_mut().zip(visits).filter(|(_, visit)| visit.gateway == n);
        of_gateway.for_each(|(stream, _)| stream.gateway_ends = end);
    }
    streams
}

/// The journal of a gateway, up to some line.
struct Reader<'a> {
    visits: &'a [Visit],
    streams: &'a mut [Stream],
    /// For each policy, how many corrections are not over, and of which streams some may not be.
    open: [(usize, Vec<usize>); POLICIES],
}

impl Reader<'_> {
    /// Reads a line. Returns its time.
    fn step(&mut self, line: &str, error: i64) -> i64 {
        let words: Vec<&str> = line.split(' ').collect();
        let [time, step, id, rest @ ..] = &*words else { panic!("what is {line:?}?") };
        let (time, id): (i64, usize) = (time.parse().unwrap(), id.parse().unwrap());
        let number = |n: usize| rest[n].parse::<u64>().unwrap();
        let at = Bracket { from: time - error, to: time + error };
        if *step == "corrected" {
            let (count, ids) = &mut self.open[id];
            *count -= 1;
            if *count == 0 {
                ids.drain(..).for_each(|id| self.streams[id].end.as_mut().unwrap().at.to = at.to);
            }
            return time;
        }
        let stream = &mut self.streams[id];
        match *step {
            "ask" => {
                let at = Bracket { to: NEVER, ..at };
                stream.asks.push(UnitRequest { units: number(0), at, is_granted: false });
            }
            "granted" => {
                let ask = stream.asks.last_mut().unwrap();
                (ask.at.to, ask.is_granted) = (at.to, true);
            }
            "denied" => {
                stream.asks.pop();
                stream.denials += 1;
            }
            "failed" => stream.failures += 1,
            "chunk" => stream.chunks.push(at),
            "settling" | "dropped" => {
                let (is_drop, at) = (*step == "dropped", Bracket { to: NEVER, ..at });
                // A stream that has used nothing keeps its estimate.
                let total = if is_drop && number(0) == 0 { stream.reserved() } else { number(0) };
                stream.end = Some(End { total, at, is_drop });
                let (count, ids) = &mut self.open[self.visits[id].policy];
                *count += 1;
                ids.push(id);
            }
            "settled" => stream.settled.push([number(0), number(1), number(2)]),
            _ => panic!("what is {line:?}?"),
        }
        time
    }
}

impl Stream {
    pub(crate) fn grants(&self) -> impl Iterator<Item = &UnitRequest> + Clone {
        self.asks.iter().filter(|ask| ask.is_granted)
    }

    /// The units that are granted.
    pub(crate) fn reserved(&self) -> u64 {
        self.grants().map(|grant| grant.units).sum()
    }

    /// The units that may have been granted without a record: the client left before, the gateway
    /// was killed, or the store failed.
    pub(crate) fn unanswered(&self) -> u64 {
        self.asks.iter().filter(|ask| !ask.is_granted).map(|ask| ask.units).sum()
    }

    /// The units that it asked for first, if its client left before the answer. They are refunded
    /// together with its slot.
    pub(crate) fn withdrawn(&self) -> u64 {
        self.asks.first().filter(|ask| !ask.is_granted).map_or(0, |ask| ask.units)
    }

    /// The grants, each with the units that stay charged once the stream is settled: the oldest are
    /// used first.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (&UnitRequest, u64)> {
        let mut left = self.end.map_or(u64::MAX, |end| end.total);
        self.grants().map(move |grant| {
            let kept = grant.units.min(left);
            left -= kept;
            (grant, kept)
        })
    }

    /// When it held nothing more that it could use or give back, at the latest.
    pub(crate) fn lives_until(&self) -> i64 {
        self.end.map_or(self.gateway_ends, |end| end.at.to)
    }

    /// Whether it had units, or asked for some, within this time.
    pub(crate) fn is_live(&self, within: Bracket) -> bool {
        self.asks.first().is_some_and(|ask| ask.at.from <= within.to) && self.lives_until() >= within.from
    }

    /// Whether it needs a correction that is not known to be over.
    pub(crate) fn is_open(&self) -> bool {
        self.grants().next().is_some() && self.end.is_none_or(|end| end.at.to == NEVER)
    }

    /// The least and the most units that are charged in the end, if the store never fails.
    pub(crate) fn charged(&self) -> (u64, u64) {
        let least = self.end.map_or(self.reserved(), |end| end.total);
        let most = if self.is_open() { self.reserved() } else { least };
        (least, if self.failures == 0 { most + self.unanswered() } else { most })
    }
}
