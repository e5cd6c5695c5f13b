//! The details of an error, as messages of
//! [`google.rpc`](https://github.com/googleapis/googleapis/tree/master/google/rpc).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use smallvec::SmallVec;

use super::code::{code, refusing, wait};
use crate::decision::Denial;
use crate::errors::Reason;

/// A message that tells programs about a denial.
pub(super) enum Detail {
    /// How long to wait, if waiting helps.
    RetryInfo(Duration),
    /// A violation for each policy that refused, as far as they fit.
    QuotaFailure,
}

impl Detail {
    /// The details of a denial. None if there is nothing to wait for and no quota was exceeded.
    pub(super) fn of(denial: &Denial) -> impl Iterator<Item = Detail> {
        let exceeded =
            matches!(denial.reason(), Reason::QuotaExceeded | Reason::Blocked | Reason::NeverPossible);
        let retry_info = wait(denial).map(Detail::RetryInfo);
        [retry_info, exceeded.then_some(Detail::QuotaFailure)].into_iter().flatten()
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Detail::RetryInfo(_) => "google.rpc.RetryInfo",
            Detail::QuotaFailure => "google.rpc.QuotaFailure",
        }
    }

    pub(super) fn write(&self, denial: &Denial, message: &mut Message) {
        match self {
            Detail::RetryInfo(wait) => message.nested(1, |delay| {
                delay.number(1, wait.as_secs());
                delay.number(2, wait.subsec_nanos().into());
            }),
            // The subject is the policy: a key would say whose quota it is.
            Detail::QuotaFailure => refusing(denial).0.iter().for_each(|policy| {
                message.nested(1, |violation| {
                    violation.bytes(1, policy.as_bytes());
                    violation.bytes(2, denial.reason().text().as_bytes());
                });
            }),
        }
    }
}

/// `google.rpc.Status`, the value of `grpc-status-details-bin`. `None` without details.
pub(super) fn status(denial: &Denial, text: &str) -> Option<Message> {
    let mut details = Detail::of(denial).peekable();
    details.peek()?;
    let mut status = Message::default();
    status.number(1, code(denial.reason()).number);
    status.bytes(2, text.as_bytes());
    for detail in details {
        status.nested(3, |any| {
            any.nested(1, |url| {
                url.0.extend_from_slice(b"type.googleapis.com/");
                url.0.extend_from_slice(detail.type_name().as_bytes());
            });
            any.nested(2, |message| detail.write(denial, message));
        });
    }
    Some(status)
}

/// A message of Protocol Buffers: see its
/// [encoding](https://protobuf.dev/programming-guides/encoding/).
#[derive(Debug)]
pub(super) struct Message(Vec<u8>);

impl Default for Message {
    fn default() -> Message {
        // Most are no longer: it grows once.
        Message(Vec::with_capacity(256))
    }
}

impl Message {
    /// A field of an integer type. Zero is left out.
    fn number(&mut self, field: u8, value: u64) {
        if value > 0 {
            self.0.push(field << 3);
            self.0.extend(varint(value));
        }
    }

    /// A field of type `bytes` or `string`.
    fn bytes(&mut self, field: u8, value: &[u8]) {
        self.nested(field, |message| message.0.extend_from_slice(value));
    }

    /// A field that is a message. Its length stands before it.
    fn nested(&mut self, field: u8, write: impl FnOnce(&mut Message)) {
        self.0.push(field << 3 | 2);
        let start = self.0.len();
        write(self);
        let length = self.0.len() - start;
        self.0.splice(start..start, varint(length as u64));
    }

    #[cfg(feature = "tonic")]
    pub(super) fn into_bytes(self) -> bytes::Bytes {
        self.0.into()
    }

    /// Base64 without padding.
    pub(super) fn base64(&self) -> String {
        STANDARD_NO_PAD.encode(&self.0)
    }
}

/// Seven bits a byte, the lowest first. All but the last byte have the highest bit set.
fn varint(mut value: u64) -> SmallVec<[u8; 10]> {
    let mut bytes = SmallVec::new();
    while value > 0x7f {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}
