//! Which content types are gRPC.

/// How a gRPC call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcType {
    /// `application/grpc`, with trailers of HTTP.
    Plain,
    /// `application/grpc-web`, with the trailers in the body.
    Web,
    /// `application/grpc-web-text`, in base64.
    WebText,
}

impl GrpcType {
    /// That of a content type of any message format. `None` if it is not gRPC.
    pub(crate) fn of(content_type: &[u8]) -> Option<GrpcType> {
        let rest = after(content_type, b"application/grpc")?;
        let (kind, rest) = match after(rest, b"-web") {
            None => (GrpcType::Plain, rest),
            Some(web) => match after(web, b"-text") {
                None => (GrpcType::Web, web),
                Some(text) => (GrpcType::WebText, text),
            },
        };
        matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t')).then_some(kind)
    }
}

/// What follows a prefix, in upper or lower case.
pub(crate) fn after<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}
