//! A key from a request's extensions.

use std::any::type_name;
use std::marker::PhantomData;
use std::sync::Once;

use tollgate_core::Key;

use super::extractor::KeyExtractor;
use super::head::Head;
use crate::errors::Reason;

/// A key from something that an outer layer left in the request's extensions, such as the user that
/// authentication found.
///
/// If a request is refused because the type is missing, the log names the type once. The likely
/// cause is the order of the layers: the one that inserts the type has to be outside of the limit.
/// With [`or`](super::KeyExtractor::or) such a request has the other key, and nothing is logged.
///
/// ```
/// use tollgate::extract::extension;
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let by_user = extension(|user: &User| user.id);
/// ```
///
/// A closure that borrows from the value is for [`extension_ref`]. A key that takes a query, such
/// as the account of a token, is the work of that outer layer: an extractor does not wait.
#[doc(alias("async", "user"))]
pub fn extension<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> impl KeyExtractor
where
    T: Send + Sync + 'static,
    K: Into<Key>,
{
    Extension { key: move |value: &T| key(value).into(), logged: Once::new(), of: PhantomData }
}

/// [`extension`] for a closure that borrows the key from the value: a name, or any `&Q` of which a
/// [`Key`] can be made.
///
/// ```
/// use tollgate::extract::extension_ref;
///
/// #[derive(Clone)]
/// struct User { name: String }
///
/// let by_user = extension_ref(|user: &User| user.name.as_str());
/// ```
pub fn extension_ref<T, Q>(key: impl Fn(&T) -> &Q + Send + Sync + 'static) -> impl KeyExtractor
where
    T: Send + Sync + 'static,
    Q: ?Sized + 'static,
    for<'a> &'a Q: Into<Key>,
{
    extension(move |value: &T| -> Key { key(value).into() })
}

struct Extension<T, F> {
    key: F,
    logged: Once,
    of: PhantomData<fn(&T)>,
}

impl<T, F> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Key + Send + Sync + 'static,
{
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        head.extensions().get::<T>().map(&self.key)
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        if head.extensions().get::<T>().is_none() {
            self.logged.call_once(|| log_missing(type_name::<T>()));
        }
        Reason::NoKey
    }
}

fn log_missing(_type_name: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(
        code = %tollgate_core::LogCode::NoExtension,
        "a request was refused because its extensions hold no `{_type_name}`; the likely cause is the order of the \
         layers: the layer that inserts it has to be outside of the rate limit"
    );
}
