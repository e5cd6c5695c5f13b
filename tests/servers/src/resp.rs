//! The part of the Redis protocol that is needed to send a command.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Error;

/// Sends a command over a new connection and returns the elements of the answer. Nested arrays are
/// flattened. An answer that is no array is one element, and a null is an empty text.
///
/// # Errors
/// If the answer is or contains an error, or does not arrive within `timeout`.
pub(super) fn ask(
    address: SocketAddr,
    timeout: Duration,
    words: &[impl AsRef<[u8]>],
) -> Result<Vec<Vec<u8>>, Error> {
    let answer = exchange(address, timeout, words);
    let answer = answer.unwrap_or_else(|error| Err(format!("no answer: {error}")));
    answer.map_err(|error| {
        let words: Vec<_> = words.iter().take(4).map(|word| String::from_utf8_lossy(word.as_ref())).collect();
        Error(format!("{address}, asked {:?}: {error}", words.join(" ")))
    })
}

/// The answer, or the error that it is. The outer error is that of the connection.
fn exchange(
    address: SocketAddr,
    timeout: Duration,
    words: &[impl AsRef<[u8]>],
) -> io::Result<Result<Vec<Vec<u8>>, String>> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    stream.write_all(&request)?;
    read(&mut BufReader::new(stream))
}

fn read(from: &mut impl BufRead) -> io::Result<Result<Vec<Vec<u8>>, String>> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
    let number = || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
    match kind {
        "+" | ":" => Ok(Ok(vec![rest.into()])),
        "-" => Ok(Err(rest.to_owned())),
        "$" => {
            // A negative length is a null.
            let Ok(length) = usize::try_from(number()?) else { return Ok(Ok(vec![Vec::new()])) };
            let mut text = vec![0; length + "\r\n".len()];
            from.read_exact(&mut text)?;
            text.truncate(length);
            Ok(Ok(vec![text]))
        }
        "*" => {
            let mut elements = Vec::new();
            for _ in 0..number()? {
                match read(from)? {
                    Ok(more) => elements.extend(more),
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(elements))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
