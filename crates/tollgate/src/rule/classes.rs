//! Classes of requests that leave units to others.

use std::sync::Arc;

use tollgate_core::Key;

use super::Rule;
use super::choice::{Choice, ChoiceError};
use crate::errors::{SetupError, or_panic};
use crate::extract::Head;

/// Named classes, and the closure that chooses one.
#[derive(Clone)]
pub(super) struct Classes {
    /// The units that each leaves to others, by its name.
    units: Arc<[(Box<str>, u64)]>,
    choice: Choice,
}

impl Classes {
    /// The units that each class leaves to others.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, u64)> {
        self.units.iter().map(|(name, units)| (&**name, *units))
    }
}

impl Rule {
    /// Makes some requests leave units to others, such as batch jobs to people who wait. A request
    /// of a class is refused once no more than its units are left of the quota; all others may use
    /// these too. The closure sees the request and its key, and returns the name of the class. No
    /// response contains that name, and fields show what is left for the class.
    ///
    /// **A request without a class may use the whole quota**: if the closure returns `None`, or a
    /// name that is not in the list. So name the classes that yield. **Callers choose a class that
    /// is read from a header**, unless an outer layer has checked it.
    ///
    /// A class of a bucket gets its capacity less these units at once, and then the whole rate.
    /// That of a window gets the limit less these units in each window. If the rule has
    /// [tiers](Rule::tiers), each class leaves as many units of each tier.
    ///
    /// A class bounds what is granted. What a request [used](crate::Rule::reserve) beyond its
    /// estimate is charged by the whole quota, and its debt is at most one more capacity of that.
    /// So a class with low estimates can bring others into debt.
    ///
    /// On a [leased](crate::StoreExt::leased) store, each request of a class asks the store. Others
    /// may be refused while processes hold units that they do not use: see [the bounds of a
    /// lease](crate::scale#the-bounds-of-a-lease).
    ///
    /// ```
    /// use tollgate::extract::header;
    /// use tollgate::{Head, Key, Policy, PolicyExt, Quota};
    ///
    /// let class = |head: &Head<'_>, _: &Key| {
    ///     head.headers().get("x-class")?.to_str().ok().map(str::to_owned)
    /// };
    /// let rule = Policy::new("api", Quota::per_minute(1_000))
    ///     .by(header("x-api-key"))
    ///     .leaving([("batch", 200), ("background", 500)], class);
    /// ```
    ///
    /// Each call replaces the classes of the call before.
    ///
    /// # Panics
    /// If [`Rule::try_leaving`] would return an error.
    #[track_caller]
    pub fn leaving<N: AsRef<str>, T: AsRef<str>>(
        self,
        units: impl IntoIterator<Item = (N, u64)>,
        class: impl Fn(&Head<'_>, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Rule {
        let name = self.policy.name().to_owned();
        or_panic(self.try_leaving(units, class).map_err(|error| format!("policy {name:?}: {error}")))
    }

    /// [`Rule::leaving`] for classes that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError`] if there are no classes, if a name is empty or not unique, or if a class
    /// leaves nothing to itself.
    pub fn try_leaving<N: AsRef<str>, T: AsRef<str>>(
        self,
        units: impl IntoIterator<Item = (N, u64)>,
        class: impl Fn(&Head<'_>, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Rule, SetupError> {
        let (units, choice) = Choice::try_new(units, class).map_err(|error| match error {
            ChoiceError::Empty => SetupError::NoClasses,
            ChoiceError::Unnamed => SetupError::UnnamedClass,
            ChoiceError::Twice(name) => SetupError::ClassTwice(name),
        })?;
        let rule = Rule { classes: Some(Classes { units: units.into(), choice }), ..self };
        rule.try_variants()?;
        Ok(rule)
    }

    /// The units that a request leaves to others.
    pub(crate) fn class_units(&self, head: &Head<'_>, key: &Key) -> u64 {
        let units = |classes: &Classes| Some(classes.units[classes.choice.of(head, key)?].1);
        self.classes.as_ref().and_then(units).unwrap_or(0)
    }

    /// The place among the variants, after the rule's own policy, of the one that a request has.
    /// `None`: the rule's own.
    pub(crate) fn variant(&self, head: &Head<'_>, key: &Key) -> Option<usize> {
        let tier = self.tier(head, key);
        match self.classes.as_ref().and_then(|classes| classes.choice.of(head, key)) {
            None => tier,
            Some(class) => {
                let tiers = self.tiers_policies().len();
                Some(tiers + class * (1 + tiers) + tier.map_or(0, |tier| 1 + tier))
            }
        }
    }
}
