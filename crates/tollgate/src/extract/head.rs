//! The head of a request, borrowed.

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// A view of a request's head, without its body. Cheap to copy.
///
/// Extractors, costs, tiers, exemptions and answers are functions of it. It has the methods of
/// [`http::Request`], and is made of one, or of [`Parts`]:
///
/// ```
/// use http::Request;
/// use tollgate::extract::{KeyExtractor, header};
/// use tollgate::{Head, Key};
///
/// let request = Request::get("/reports").header("x-api-key", "ada").body(()).unwrap();
/// let head = Head::from(&request);
/// assert_eq!(head.uri().path(), "/reports");
/// assert_eq!(header("x-api-key").extract(&head), Some(Key::from("ada")));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Returns the method.
    #[inline]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the URI.
    #[inline]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the version of HTTP.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the headers.
    #[inline]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, in which outer layers leave what they know of the request.
    #[inline]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    #[inline]
    fn from(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    #[inline]
    fn from(parts: &'a Parts) -> Head<'a> {
        Head {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

/// The URI as it was received. A nested router of axum removes the beginning of the path.
pub(crate) fn received<'a>(head: &Head<'a>) -> &'a Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = head.extensions().get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    head.uri()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::{
        ClientIp, KeyExtractor, PeerAddr, PeerIp, basic_user, cookie, extension, global, header, method,
    };

    #[test]
    fn a_whole_request_has_the_key_of_its_parts() {
        let request = || {
            let address = PeerAddr(([192, 0, 2, 1], 4_000).into());
            Request::post("/")
                .header("a", "b")
                .header("cookie", "c=d")
                .header("authorization", "Basic YWRhOg==")
                .extension(address)
                .body(())
                .unwrap()
        };
        let agrees = |extractor: &dyn KeyExtractor| {
            let whole = extractor.extract(&Head::from(&request()));
            assert!(whole.is_some());
            assert_eq!(whole, extractor.extract(&Head::from(&request().into_parts().0)));
        };
        agrees(&header("a"));
        agrees(&cookie("c"));
        agrees(&basic_user());
        agrees(&PeerIp::new());
        agrees(&ClientIp::from_header("a").trusting_hops(1));
        agrees(&extension(|peer: &PeerAddr| u64::from(peer.0.port())));
        agrees(&method());
        agrees(&global());
        agrees(&header("absent").or((header("a"), method(), global())));
        agrees(&|head: &Head<'_>| head.uri().path().strip_prefix('/').map(tollgate_core::Key::from));
    }
}
