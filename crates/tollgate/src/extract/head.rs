//! The head of a request, borrowed.

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request};

/// A view of a request's head.
///
/// `http` returns [`Parts`] only by value. To show them to a closure, a layer has to split the
/// request and join it again, which moves more than 200 bytes twice. If no rule needs parts, the
/// request stays whole.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
    /// The parts, if the request was split.
    pub(crate) parts: Option<&'a Parts>,
}

impl<'a> Head<'a> {
    /// The head of a whole request.
    #[inline]
    pub(crate) fn of<B>(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            headers: request.headers(),
            extensions: request.extensions(),
            parts: None,
        }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    #[inline]
    fn from(parts: &'a Parts) -> Head<'a> {
        Head {
            method: &parts.method,
            headers: &parts.headers,
            extensions: &parts.extensions,
            parts: Some(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Key;

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
            assert!(!extractor.needs_parts());
            let whole = extractor.extract_from(&Head::of(&request()));
            assert!(whole.is_some());
            assert_eq!(whole, extractor.extract(&request().into_parts().0));
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
    }

    #[test]
    fn one_closure_needs_the_parts_for_all() {
        let closure = |parts: &Parts| Some(Key::from(parts.uri.path()));
        assert!((global(), closure).needs_parts() && header("a").or(closure).needs_parts());
        let parts = Request::new(()).into_parts().0;
        let key = (global(), closure).extract_from(&Head::from(&parts));
        assert_eq!(key, Some(Key::join([Key::global(), Key::from("/")])));
    }
}
