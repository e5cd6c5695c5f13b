//! The details of an error, as the messages of [`google.rpc`](https://github.com/googleapis/googleapis/tree/master/google/rpc):
//! `RetryInfo` if waiting helps, and `QuotaFailure` with a violation for each policy that refused.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::wait;
use crate::denial::Denial;
use crate::problem::Reason;

/// A message and the name of its type.
pub(super) struct Detail {
    pub(super) name: &'static str,
    pub(super) message: Message,
}

/// The details of a denial. Empty if there is nothing to wait for and no quota was exceeded.
pub(super) fn details(denial: &Denial) -> Vec<Detail> {
    let mut details = Vec::with_capacity(2);
    if let Some(wait) = wait(denial) {
        let delay = Message::default().number(1, wait.as_secs()).number(2, wait.subsec_nanos().into());
        let message = Message::default().bytes(1, &delay.0);
        details.push(Detail { name: "google.rpc.RetryInfo", message });
    }
    if matches!(denial.reason(), Reason::QuotaExceeded | Reason::NeverPossible) {
        let description = denial.to_string();
        let message = denial.violated().fold(Message::default(), |message, policy| {
            // The subject is the policy: a key would say whose quota it is.
            let violation = Message::default().bytes(1, policy.as_bytes()).bytes(2, description.as_bytes());
            message.bytes(1, &violation.0)
        });
        details.push(Detail { name: "google.rpc.QuotaFailure", message });
    }
    details
}

/// `google.rpc.Status`, the value of `grpc-status-details-bin`. `None` without details.
pub(super) fn status(denial: &Denial, message: &str) -> Option<Message> {
    let details = details(denial);
    let status =
        Message::default().number(1, super::code(denial.reason()).number).bytes(2, message.as_bytes());
    (!details.is_empty()).then(|| {
        details.iter().fold(status, |status, detail| {
            let url = format!("type.googleapis.com/{}", detail.name);
            let any = Message::default().bytes(1, url.as_bytes()).bytes(2, &detail.message.0);
            status.bytes(3, &any.0)
        })
    })
}

/// A message of Protocol Buffers: see its [encoding](https://protobuf.dev/programming-guides/encoding/).
#[derive(Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    /// A field of an integer type. Zero is left out.
    fn number(mut self, field: u8, value: u64) -> Message {
        if value > 0 {
            self.0.push(field << 3);
            self.varint(value);
        }
        self
    }

    /// A field of type `bytes` or `string`, or a message in a message.
    fn bytes(mut self, field: u8, value: &[u8]) -> Message {
        self.0.push(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Seven bits a byte, the lowest first. All but the last byte have the highest bit set.
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    /// Base64 without padding.
    pub(super) fn base64(&self) -> String {
        STANDARD_NO_PAD.encode(&self.0)
    }
}
