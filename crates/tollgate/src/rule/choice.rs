//! A fixed list of names, of which a request chooses one.

use std::sync::Arc;

use tollgate_core::Key;

use crate::extract::Head;

type Choose = dyn Fn(&Head<'_>, &Key) -> Option<usize> + Send + Sync;

/// The closure that chooses, as the place of a name in its list.
#[derive(Clone)]
pub(super) struct Choice(Arc<Choose>);

/// Values by their names.
pub(super) type Named<V> = Vec<(Box<str>, V)>;

/// What is wrong with a list of names.
pub(super) enum ChoiceError {
    Empty,
    Unnamed,
    Twice(String),
}

impl Choice {
    /// Sorts named values. Returns them with what chooses among them.
    pub(super) fn try_new<N: AsRef<str>, V, T: AsRef<str>>(
        named: impl IntoIterator<Item = (N, V)>,
        choose: impl Fn(&Head<'_>, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Result<(Named<V>, Choice), ChoiceError> {
        let named = named.into_iter().map(|(name, value)| (Box::from(name.as_ref()), value));
        let mut named: Named<V> = named.collect();
        named.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(two) = named.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(ChoiceError::Twice(two[0].0.to_string()));
        }
        match named.first() {
            None => return Err(ChoiceError::Empty),
            Some((first, _)) if first.is_empty() => return Err(ChoiceError::Unnamed),
            Some(_) => {}
        }
        let names: Vec<Box<str>> = named.iter().map(|(name, _)| name.clone()).collect();
        // A search in a sorted list has no hash to be attacked, and takes 14 comparisons for 10,000
        // names.
        let choose = move |head: &Head<'_>, key: &Key| {
            let name = choose(head, key)?;
            names.binary_search_by(|other| (**other).cmp(name.as_ref())).ok()
        };
        Ok((named, Choice(Arc::new(choose))))
    }

    /// The place of the name that a request chooses, if it is in the list.
    pub(super) fn of(&self, head: &Head<'_>, key: &Key) -> Option<usize> {
        (self.0)(head, key)
    }
}
