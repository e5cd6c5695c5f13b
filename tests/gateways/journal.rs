//! The file to which a gateway writes each step, in the time of Redis.

use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A file with a line for each step. Lines are not buffered, so they outlive a killed process.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// What the clock of Redis is ahead of that of this process, in microseconds.
    offset: i64,
}

impl Journal {
    pub(crate) fn new(path: &str, offset: i64) -> io::Result<Journal> {
        Ok(Journal { file: File::create(path)?, offset })
    }

    pub(crate) fn write(&self, step: Arguments<'_>) {
        let line = format!("{} {step}\n", micros() + self.offset);
        // One call for each line, so that the lines of two threads do not mix.
        (&self.file).write_all(line.as_bytes()).expect("the journal is written");
    }
}

/// The offset of the clock of Redis, and the most by which that is wrong, in microseconds.
pub(crate) async fn measure(node: &str) -> io::Result<(i64, i64)> {
    let mut connection = BufReader::new(TcpStream::connect(node).await?);
    let mut best = (0, i64::MAX);
    for _ in 0..50 {
        let before = micros();
        connection.write_all(b"TIME\r\n").await?;
        let mut lines = [const { String::new() }; 5];
        for line in &mut lines {
            connection.read_line(line).await?;
        }
        let after = micros();
        let number = |line: &str| line.trim().parse::<i64>().map_err(io::Error::other);
        let time = number(&lines[2])? * 1_000_000 + number(&lines[4])?;
        let error = (after - before) / 2 + 1;
        if error < best.1 {
            best = (time - (before + after) / 2, error);
        }
    }
    Ok(best)
}

#[expect(clippy::disallowed_methods, reason = "it measures the clock that the test has set wrong")]
fn micros() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(since_epoch.as_micros()).expect("a time before the year 294,000")
}
