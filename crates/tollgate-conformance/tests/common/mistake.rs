//! Mistakes, many of which stores have made.

/// What the store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// A denied request is charged what room there is.
    ChargesDenied,
    /// Each check is decided by itself.
    OneByOne,
    /// The checks of a key are decided together, those of another apart: what a cluster does.
    KeyByKey,
    /// Looks under one lock and charges under another.
    LooksThenCharges,
    /// Each request costs 1.
    ForgetsTheCost,
    /// Takes what it can of a cost and grants it.
    GrantsWithoutRoom,
    /// A refund is a negative charge: it forgets the state.
    RefundRefillsAll,
    RefundDoesNothing,
    /// A refund ignores whether the grant's window is over.
    RefundLandsInTheNextWindow,
    /// A refund of several grants ends at the first that is void.
    RefundEndsAtTheFirst,
    /// What a clock that stepped back has forgiven comes back once more.
    RefundOfWhatWasForgiven,
    WaitTooShort,
    WaitTooLong,
    WaitInWholeMilliseconds,
    /// At the very end of a window its count still stands.
    InheritsTheOldCount,
    ForgetsEarly,
    ResetDoesNothing,
    ResetForgetsEverybody,
    KeysAreOne,
    LongKeysAreCutOff,
    /// Key and policy are written one after the other.
    NamesRunTogether,
    PoliciesAreOne,
    ScopeHasTheLimit,
    ClonesAreApart,
    LookCharges,
    ZeroCostsOne,
    NeverIsAWait,
    PartialIsAllOrNothing,
    PartialIgnoresTheLeast,
    TwiceIsOnce,
    EmptyIsDenied,
    NoDelay,
    DelayOfTheLast,
    EachReportsTheWait,
    StatusesBackwards,
    DoublesForTime,
    ClockBackIsANewKey,
    /// Time never goes back: who waits as long as it was told comes too early by all that the clock lost.
    ClockBackIsIgnored,
    RemainingBeforeTheCharge,
    ResetTooEarly,
}
