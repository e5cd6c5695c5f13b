//! The trailers of gRPC-Web, which are in the body.

use std::mem;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Finds the trailers in a body of gRPC-Web, whatever the chunks are in which it arrives.
///
/// A body is a sequence of frames: a byte of flags, the length in four bytes, and as many bytes
/// (gRPC's PROTOCOL-WEB). The lengths are followed, so nothing inside of a message is ever taken
/// for a frame.
#[derive(Debug)]
pub(super) struct WebTrailers {
    /// Of a body in base64, the characters that do not make whole bytes yet.
    text: Option<Read>,
    part: FramePart,
}

/// The part of a body that comes next.
#[derive(Debug)]
enum FramePart {
    /// The flags and the length of a frame, as far as they were there.
    Start(Read),
    /// So many bytes of a message.
    Message(u32),
    /// Trailers of this length, as far as they were there.
    Trailers(Read, usize),
    /// What nothing reads: behind the trailers, or malformed.
    Rest,
}

/// What was read of a part that is not complete.
type Read = SmallVec<[u8; 8]>;

const LENGTH_OF_START: usize = 5;

/// The flag of trailers, and of a message that is compressed.
const TRAILERS: u8 = 0x80;
const COMPRESSED: u8 = 1;

/// Servers send less. Longer ones are not kept in memory, and do not count.
const LONGEST_TRAILERS: u32 = 64 * 1_024;

/// How many characters of base64 are decoded at once.
const DECODED_AT_ONCE: usize = 4 * 1_024;

impl WebTrailers {
    pub(super) fn new(is_text: bool) -> WebTrailers {
        WebTrailers { text: is_text.then(Read::new), part: FramePart::Start(Read::new()) }
    }

    /// Reads the next bytes of the body. Returns the trailers once, when they are complete.
    pub(super) fn read(&mut self, data: &[u8]) -> Option<HeaderMap> {
        match self.text.take() {
            None => self.part.read(data),
            Some(mut left) => {
                let found = self.read_text(&mut left, data);
                self.text = Some(left);
                found
            }
        }
    }

    /// Reads base64. Servers encode one piece after another, so padding may be anywhere.
    fn read_text(&mut self, left: &mut Read, mut text: &[u8]) -> Option<HeaderMap> {
        let mut decoded = [0; DECODED_AT_ONCE / 4 * 3];
        while !text.is_empty() {
            // Groups of four characters: one that spans chunks, or those up to a padding.
            let spanning;
            let groups = if left.is_empty() && text.len() >= 4 {
                let whole = &text[..text.len().min(DECODED_AT_ONCE) & !3];
                let padding = whole.iter().position(|byte| *byte == b'=');
                let (groups, rest) = text.split_at(padding.map_or(whole.len(), |at| (at & !3) + 4));
                text = rest;
                groups
            } else {
                take(&mut text, left, 4);
                if left.len() < 4 {
                    return None;
                }
                spanning = mem::take(left);
                &spanning
            };
            let Ok(length) = STANDARD.decode_slice(groups, &mut decoded) else {
                self.part = FramePart::Rest;
                return None;
            };
            if let Some(found) = self.part.read(&decoded[..length]) {
                return Some(found);
            }
        }
        None
    }
}

impl FramePart {
    fn read(&mut self, mut data: &[u8]) -> Option<HeaderMap> {
        while !data.is_empty() {
            match self {
                FramePart::Start(start) => {
                    take(&mut data, start, LENGTH_OF_START);
                    if let [flags, a, b, c, d] = start[..] {
                        *self = FramePart::after_start(flags, u32::from_be_bytes([a, b, c, d]));
                    }
                }
                FramePart::Message(left) => {
                    let skipped = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    data = &data[skipped..];
                    *left -= u32::try_from(skipped).unwrap_or(*left);
                }
                FramePart::Trailers(lines, length) => take(&mut data, lines, *length),
                FramePart::Rest => return None,
            }
            match self {
                FramePart::Message(0) => *self = FramePart::Start(Read::new()),
                FramePart::Trailers(lines, length) if lines.len() == *length => {
                    let trailers = fields(lines);
                    *self = FramePart::Rest;
                    return Some(trailers);
                }
                _ => {}
            }
        }
        None
    }

    fn after_start(flags: u8, length: u32) -> FramePart {
        match flags {
            0 | COMPRESSED => FramePart::Message(length),
            TRAILERS if length <= LONGEST_TRAILERS => FramePart::Trailers(Read::new(), length as usize),
            _ => FramePart::Rest,
        }
    }
}

/// Moves bytes from the data until there are `length` of them.
fn take(data: &mut &[u8], into: &mut Read, length: usize) {
    let (taken, rest) = data.split_at((length - into.len()).min(data.len()));
    into.extend_from_slice(taken);
    *data = rest;
}

/// Lines as of HTTP/1.1. Those that are no field are left out.
fn fields(lines: &[u8]) -> HeaderMap {
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((HeaderName::from_bytes(&line[..colon]).ok()?, value))
    };
    lines.split(|byte| *byte == b'\n').filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn frame(flags: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&[flags], &length[..], content].concat()
    }

    fn trailers(status: u32) -> Vec<u8> {
        frame(TRAILERS, format!("grpc-status: {status}\r\ngrpc-message:\r\n").as_bytes())
    }

    /// The status in the trailers of a body that is there as a whole.
    fn of_whole(mut body: &[u8]) -> Option<String> {
        loop {
            let (start, rest) = body.split_first_chunk::<LENGTH_OF_START>()?;
            let length = u32::from_be_bytes(start[1..].try_into().unwrap()) as usize;
            let (content, rest) = rest.split_at_checked(length)?;
            match start[0] {
                0x80 => {
                    let lines = std::str::from_utf8(content).unwrap();
                    let mut statuses = lines.lines().filter_map(|line| line.strip_prefix("grpc-status:"));
                    return Some(statuses.next()?.trim().to_owned());
                }
                0 | 1 => body = rest,
                _ => return None,
            }
        }
    }

    /// The status that a body in chunks has.
    fn of_chunks<'a>(is_text: bool, chunks: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
        let mut reader = WebTrailers::new(is_text);
        let mut found = chunks.into_iter().filter_map(|chunk| reader.read(chunk));
        let trailers = found.next();
        assert!(found.next().is_none(), "trailers are found once");
        Some(trailers?.get("grpc-status")?.to_str().unwrap().to_owned())
    }

    fn cut<'a>(body: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|two| &body[two[0]..two[1]]).collect()
    }

    /// Each piece by itself, as servers that flush do.
    fn in_base64(body: &[u8], cuts: &[usize]) -> Vec<u8> {
        cut(body, cuts).into_iter().flat_map(|piece| STANDARD.encode(piece).into_bytes()).collect()
    }

    #[test]
    fn trailers_are_found_in_any_chunks_after_any_messages() {
        for messages in 0..3 {
            let mut body = frame(0, b"hello").repeat(messages);
            body.extend(trailers(13));
            for is_text in [false, true] {
                let sent = if is_text { in_base64(&body, &[3, 7]) } else { body.clone() };
                for at in 0..=sent.len() {
                    assert_eq!(of_chunks(is_text, cut(&sent, &[at])).as_deref(), Some("13"), "{at}");
                }
                assert_eq!(of_chunks(is_text, sent.chunks(1)).as_deref(), Some("13"));
                assert_eq!(of_chunks(is_text, [&sent[..sent.len() - 1]]), None);
            }
        }
    }

    #[test]
    fn a_message_that_looks_like_trailers_is_a_message() {
        let message = frame(0, &trailers(0));
        let body = [message.clone(), trailers(13)].concat();
        for chunks in [&[LENGTH_OF_START][..], &[message.len()], &[LENGTH_OF_START, message.len()], &[]] {
            assert_eq!(of_chunks(false, cut(&body, chunks)).as_deref(), Some("13"), "{chunks:?}");
        }
        assert_eq!(of_chunks(false, cut(&message, &[LENGTH_OF_START])), None);
    }

    #[test]
    fn malformed_and_endless_bodies_have_no_trailers_and_take_no_memory() {
        let endless = [&[TRAILERS, 0xff, 0xff, 0xff, 0xff][..], b"grpc-status: 0\r\n"].concat();
        for body in [&endless[..], &[2, 0, 0, 0, 0], &[0x81, 0, 0, 0, 0]] {
            let body = [body, &trailers(0)].concat();
            assert_eq!(of_chunks(false, [&body[..]]), None);
        }
        for text in ["!AAA", "A===", "====", "AA=A"] {
            let text = [text.as_bytes(), &in_base64(&trailers(0), &[])].concat();
            assert_eq!(of_chunks(true, [&text[..]]), None);
        }
    }

    /// A message with content that a caller chose, or another frame.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (vec(any::<u8>(), 0..40), 0..2_u8).prop_map(|(content, flags)| frame(flags, &content)),
            4 => (0..20_u32, vec(any::<u8>(), 0..4)).prop_map(|(status, before)| {
                frame(0, &[before, trailers(status)].concat())
            }),
            1 => any::<u8>().prop_map(|flags| if flags == TRAILERS { trailers(5) } else { frame(flags, b"x") }),
            2 => (0..20_u32).prop_map(trailers),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10_000) })]

        #[test]
        fn chunks_have_the_trailers_of_the_whole_body(
            parts in vec(part(), 0..6),
            is_text: bool,
            pieces in vec(any::<usize>(), 0..4),
            cuts in vec(any::<usize>(), 0..8),
            length in any::<usize>(),
            is_cut_off in 0..4,
        ) {
            let mut body = parts.concat();
            if is_cut_off == 0 {
                body.truncate(length % (body.len() + 1));
            }
            let sent = if is_text { in_base64(&body, &pieces) } else { body.clone() };
            prop_assert_eq!(of_chunks(is_text, cut(&sent, &cuts)), of_whole(&body));
        }

        #[test]
        fn cuts_at_the_borders_of_parts_change_nothing(parts in vec(part(), 0..6), into in 0..9_usize) {
            let body = parts.concat();
            let ends = parts.iter().scan(0, |end, part| { *end += part.len(); Some(*end) });
            // Also where the content of a message begins, which a caller chose.
            let cuts: Vec<usize> = ends.flat_map(|end| [end, end + LENGTH_OF_START, end + into]).collect();
            let cuts: Vec<usize> = cuts.into_iter().chain([LENGTH_OF_START]).filter(|cut| *cut <= body.len()).collect();
            prop_assert_eq!(of_chunks(false, cut(&body, &cuts)), of_whole(&body));
        }
    }
}
