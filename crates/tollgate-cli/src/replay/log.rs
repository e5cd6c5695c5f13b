//! A log, which is read twice: for the order of its lines, and to replay them.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use http::header::USER_AGENT;
use indicatif::ProgressBar;
use tollgate::Timestamp;

use super::access::access_line;
use super::line::{LogLine, LoggedDecision, json_line};

/// The longest line, in bytes.
const LONGEST: u64 = 1 << 16;

/// What some editors write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A log whose lines are sorted by time. Each takes 32 bytes of memory.
pub(super) struct SortedLog {
    file: BufReader<File>,
    position: u64,
    progress: ProgressBar,
    pub(super) lines: Vec<LinePlace>,
    /// The names of all rules in it. There are none but in JSON.
    pub(super) rules: HashSet<String>,
    /// The latest version of the rules.
    pub(super) version: u64,
    pub(super) is_json: bool,
    /// Whether it has user agents.
    pub(super) is_combined: bool,
    /// How many lines are of rules in shadow, and the names of these.
    pub(super) in_shadow: u64,
    pub(super) shadow_rules: HashSet<String>,
    /// How many decisions have no line.
    pub(super) dropped: u64,
    /// How many lines cannot be read, and what is wrong with the first.
    pub(super) broken: u64,
    pub(super) first_broken: String,
}

#[derive(Clone, Copy)]
pub(super) struct LinePlace {
    time_us: u64,
    offset: u64,
    number: u64,
    is_refused: bool,
}

impl SortedLog {
    /// Reads the log once.
    pub(super) fn open(path: &Path, progress: ProgressBar) -> Result<SortedLog, String> {
        let file = File::open(path).map_err(in_words)?;
        let metadata = file.metadata().map_err(in_words)?;
        if !metadata.is_file() {
            return Err("not a regular file, which can be read twice".to_owned());
        }
        progress.set_length(metadata.len().saturating_mul(2));
        let mut log = SortedLog {
            // The logs of several servers in one file need a seek for each line, and fill it again.
            file: BufReader::new(file),
            position: 0,
            progress,
            lines: Vec::new(),
            rules: HashSet::new(),
            version: 0,
            is_json: false,
            is_combined: false,
            in_shadow: 0,
            shadow_rules: HashSet::new(),
            dropped: 0,
            broken: 0,
            first_broken: "the log is empty".to_owned(),
        };
        for number in 1.. {
            let offset = log.position;
            match log.next_line().map_err(in_words)? {
                None => break,
                Some(Ok(line)) => log.add(&line, offset, number),
                Some(Err(reason)) => {
                    log.broken += 1;
                    if log.broken == 1 {
                        log.first_broken = format!("line {number}: {reason}").chars().take(300).collect();
                    }
                }
            }
        }
        log.sort();
        match log.lines.is_empty() {
            true if log.in_shadow > 0 => {
                Err("only rules in shadow decided: their lines are left out".to_owned())
            }
            true => Err(log.first_broken),
            false => Ok(log),
        }
    }

    /// Reads the log again, in the order of time. Each request comes with the number of its line.
    pub(super) fn requests(mut self) -> impl Iterator<Item = Result<(u64, LogLine), String>> {
        std::mem::take(&mut self.lines).into_iter().map(move |place| {
            // Keeps the buffer if the line is in it. No file has 2^63 bytes.
            let step = place.offset.wrapping_sub(self.position).cast_signed();
            self.file.seek_relative(step).map_err(in_words)?;
            self.position = place.offset;
            match self.next_line().map_err(in_words)? {
                Some(Ok(line)) => {
                    Ok((place.number, LogLine { time: Timestamp::from_micros(place.time_us), ..line }))
                }
                _ => Err(format!("line {} has changed", place.number)),
            }
        })
    }

    /// Reads a line. The inner error says what is wrong with it.
    fn next_line(&mut self) -> io::Result<Option<Result<LogLine, String>>> {
        let mut text = Vec::new();
        let mut length = self.file.by_ref().take(LONGEST).read_until(b'\n', &mut text)?;
        let is_whole = text.len() as u64 != LONGEST || text.ends_with(b"\n");
        if !is_whole {
            length += self.file.skip_until(b'\n')?;
        }
        self.position += length as u64;
        self.progress.inc(length as u64);
        let is_first = self.position == length as u64;
        let text = text.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(&text);
        Ok((length > 0).then(|| match text.trim_ascii() {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] if is_first => {
                Err("the log is UTF-16: save it as UTF-8".to_owned())
            }
            _ if !is_whole => Err(format!("longer than {LONGEST} bytes")),
            text if text.starts_with(b"{") => json_line(text),
            text => access_line(text),
        }))
    }

    fn add(&mut self, line: &LogLine, offset: u64, number: u64) {
        let logged = line.request.extensions().get::<LoggedDecision>();
        if let Some(logged) = logged {
            self.dropped = self.dropped.saturating_add(logged.dropped);
            if logged.shadow {
                self.in_shadow += 1;
                self.shadow_rules.extend(logged.checks.iter().map(|check| check.rule.clone()));
                return;
            }
            self.is_json = true;
            self.version = self.version.max(logged.version);
            let names = logged.checks.iter().map(|check| &check.rule);
            let new: Vec<String> = names.filter(|rule| !self.rules.contains(*rule)).cloned().collect();
            self.rules.extend(new);
        }
        self.is_combined |= line.request.headers().contains_key(USER_AGENT);
        let is_refused = logged.is_some_and(|logged| !logged.allowed);
        self.lines.push(LinePlace { time_us: line.time.as_micros(), offset, number, is_refused });
    }

    /// Sorts the lines by time. Those of one time may have been decided in any order, and refused
    /// ones change no other verdict if they are last.
    fn sort(&mut self) {
        self.lines.sort_unstable_by_key(|line| (line.time_us, line.is_refused, line.number));
        if !self.is_json {
            // Spread evenly over their second.
            for second in self.lines.chunk_by_mut(|a, b| a.time_us == b.time_us) {
                let count = second.len() as u64;
                for (line, nth) in second.iter_mut().zip(0..) {
                    line.time_us += nth * 1_000_000 / count;
                }
            }
        }
    }
}

fn in_words(error: io::Error) -> String {
    error.to_string()
}
