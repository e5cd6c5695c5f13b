//! The form of gRPC's messages and answers.

use http::HeaderMap;

use super::outcome::RequestOutcome;

const OK: &[u8] = b"0";
const RESOURCE_EXHAUSTED: &[u8] = b"8";

/// Returns a message that is not compressed, after its length.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    // A message of 4 GiB does not fit in memory several times. The server refuses a wrong length.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat()
}

/// Reads the status from the trailers, or from the headers of a response without a message.
pub(crate) fn outcome(headers: &HeaderMap, trailers: Option<&HeaderMap>) -> RequestOutcome {
    let field = |name| trailers.and_then(|trailers| trailers.get(name)).or_else(|| headers.get(name));
    match field("grpc-status").map(|status| status.as_bytes()) {
        Some(OK) => RequestOutcome::Allowed,
        Some(RESOURCE_EXHAUSTED) => RequestOutcome::Denied,
        Some(status) => {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let message = field("grpc-message").map(|message| format!(": {}", text(message.as_bytes())));
            RequestOutcome::Failed(format!("grpc-status {}{}", text(status), message.unwrap_or_default()))
        }
        None => RequestOutcome::Failed("the response has no grpc-status".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([("grpc-status".parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn a_frame_begins_with_the_length_of_the_message() {
        assert_eq!(frame(b""), [0, 0, 0, 0, 0]);
        assert_eq!(frame(b"ab"), [0, 0, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn the_status_is_read_from_trailers_and_from_headers() {
        let none = HeaderMap::new();
        assert_eq!(outcome(&none, Some(&status("0"))), RequestOutcome::Allowed);
        assert_eq!(outcome(&status("8"), None), RequestOutcome::Denied);
        assert_eq!(outcome(&status("0"), Some(&status("8"))), RequestOutcome::Denied);
        assert_eq!(outcome(&status("12"), None), RequestOutcome::Failed("grpc-status 12".to_owned()));
        assert!(matches!(outcome(&none, None), RequestOutcome::Failed(_)));
    }
}
