//! What an extractor is, and how extractors combine.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::Key;

use super::head::Head;
use crate::errors::Reason;

/// Derives a [`Key`] from a request's head. Closures `Fn(&Head) -> Option<Key>` are
/// extractors.
///
/// `None` or an empty key means that the request has no key. The rule's
/// [`MissingKey`](crate::MissingKey) says what happens then.
///
/// An extractor does not wait. Let an outer layer look up what takes a query, such as the account
/// of an API key, and leave it in the extensions: axum's `middleware::from_fn` is such a layer.
/// [`extension`](super::extension()) then reads it.
///
/// ```
/// use tollgate::extract::{KeyExtractor, PeerIp, header};
/// use tollgate::{Head, Key};
///
/// // Inserted by an outer authentication layer.
/// #[derive(Clone)]
/// struct Tenant { id: u64 }
///
/// let tenant = |head: &Head<'_>| head.extensions().get::<Tenant>().map(|tenant| Key::from(tenant.id));
/// let tenant_and_device = (tenant, header("x-device"));
/// let tenant_or_address = tenant.or(PeerIp::new());
/// # fn check(_: impl KeyExtractor) {}
/// # check(tenant_and_device);
/// # check(tenant_or_address);
/// ```
#[doc(alias("async", "lookup"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key extractor",
    label = "finds no key in a request",
    note = "an extractor is one of `tollgate::extract`, or a closure `|head: &tollgate::Head<'_>| -> Option<Key>`; its \
            captured values must be `Send + Sync + 'static`",
    note = "`ClientIp::from_header(..)` is not complete: name the proxies to trust by `.trusting([\"10.0.0.0/8\"])`, \
            with their networks, or by `.trusting_hops(1)`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key of this request, if it has one.
    fn extract(&self, head: &Head<'_>) -> Option<Key>;

    /// Returns why a request that is refused for want of a key has none: [`Reason::NoKey`], or
    /// [`Reason::NoPeerAddress`] if that is the mistake of the server.
    ///
    /// It is called once for each such request. An extractor whose likely mistake is in the
    /// server's code can log it here.
    fn why_missing(&self, head: &Head<'_>) -> Reason {
        let _ = head;
        Reason::NoKey
    }

    /// Returns this extractor's key, or the other's if there is none.
    ///
    /// Their keys never collide: the header value `192.0.2.1` is another caller than that address.
    ///
    /// A request with the first key is not counted by the second. So `header(..).or(PeerIp::new())`
    /// does not limit a caller that invents a header for each request. Let the first be a checked
    /// value, such as an [`extension`](super::extension()), or add a second rule by address.
    fn or(self, other: impl KeyExtractor) -> impl KeyExtractor
    where
        Self: Sized,
    {
        Or(self, other)
    }
}

impl<F> KeyExtractor for F
where
    F: Fn(&Head<'_>) -> Option<Key> + Send + Sync + 'static,
{
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        self(head)
    }
}

struct Or<A, B>(A, B);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        let present = |key: &Key| !key.is_empty();
        let first = self.0.extract(head).filter(present).map(|key| key.of_branch(0));
        first.or_else(|| self.1.extract(head).filter(present).map(|key| key.of_branch(1)))
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        first_mistake([&self.0 as &dyn KeyExtractor, &self.1], head)
    }
}

/// Why these extractors find no key: the server's mistake, if there is one.
pub(crate) fn first_mistake<'a>(
    extractors: impl IntoIterator<Item = &'a dyn KeyExtractor>,
    head: &Head<'_>,
) -> Reason {
    let finds_none = |extractor: &&dyn KeyExtractor| extractor.extract(head).is_none();
    let mut reasons = extractors.into_iter().filter(finds_none).map(|extractor| extractor.why_missing(head));
    reasons.find(|reason| *reason != Reason::NoKey).unwrap_or(Reason::NoKey)
}

/// Makes tuples of extractors extractors of joined keys.
macro_rules! join {
    ($($extractor:ident $at:tt),+) => {
        impl<$($extractor: KeyExtractor),+> KeyExtractor for ($($extractor,)+) {
            fn extract(&self, head: &Head<'_>) -> Option<Key> {
                Some(Key::join([$(self.$at.extract(head)?),+]))
            }

            fn why_missing(&self, head: &Head<'_>) -> Reason {
                first_mistake([$(&self.$at as &dyn KeyExtractor),+], head)
            }
        }
    };
}

join!(A 0, B 1);
join!(A 0, B 1, C 2);

/// Makes pointers to extractors extractors.
macro_rules! forward {
    ($pointer:ty) => {
        impl KeyExtractor for $pointer {
            fn extract(&self, head: &Head<'_>) -> Option<Key> {
                (**self).extract(head)
            }

            fn why_missing(&self, head: &Head<'_>) -> Reason {
                (**self).why_missing(head)
            }
        }
    };
}

forward!(Box<dyn KeyExtractor>);
forward!(Arc<dyn KeyExtractor>);

/// An extractor of addresses, [`PeerIp`](super::PeerIp) or [`ClientIp`](super::ClientIp): see
/// [`from_networks`](crate::exempt::from_networks).
pub trait AddressExtractor: KeyExtractor {
    /// Returns the address of this request, ungrouped, for logs and handlers. Only IPv4-mapped
    /// addresses are unmapped.
    fn address(&self, head: &Head<'_>) -> Option<IpAddr>;
}
