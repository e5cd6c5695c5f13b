//! Mistakes that stores make.

/// The mistake of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// A denied request takes the units that are left.
    ChargesDenied,
    /// Each check is decided alone.
    OneByOne,
    /// The checks of each key are decided together, but not those of several keys, as in a cluster.
    KeyByKey,
    /// Looks under one lock and charges under another.
    LooksThenCharges,
    /// Each request costs 1.
    ForgetsTheCost,
    /// A request is granted although only a part of its cost is available.
    GrantsWithoutRoom,
    /// A refund forgets the state.
    RefundRefillsAll,
    RefundDoesNothing,
    /// A refund ignores whether the grant's window is over.
    RefundLandsInTheNextWindow,
    /// A refund of several grants ends after the first.
    RefundStopsAfterTheFirst,
    CreditDoesNothing,
    /// A credit forgets the state.
    CreditRefillsAll,
    /// A credit reaches the window, the time or the debt of the latest grant only.
    CreditReachesOneGrant,
    /// Debt that was forgiven when the clock stepped back is refunded.
    RefundsForgivenDebt,
    WaitTooShort,
    WaitTooLong,
    WaitInWholeMilliseconds,
    /// At the end of a window its count still applies.
    InheritsTheOldCount,
    ForgetsEarly,
    ResetDoesNothing,
    ResetForgetsAllKeys,
    IgnoresKeys,
    LongKeysAreCutOff,
    /// Key and scope are joined without escapes.
    JoinsKeyAndScope,
    IgnoresPolicyNames,
    ScopeHasTheLimit,
    ClonesShareNothing,
    LookCharges,
    ZeroCostsOne,
    NeverIsAWait,
    PartialIsAllOrNothing,
    PartialIgnoresMin,
    RepeatedPairCountsOnce,
    EmptyIsDenied,
    NoDelay,
    DelayOfTheLast,
    EachReportsTheWait,
    StatusesBackwards,
    DoublesForTime,
    ClockBackIsANewKey,
    /// A refusal forgets what other versions of the policy owe.
    CutsOtherVersions,
    /// Time never goes back, so a retry after its wait is too early by the step of the clock.
    ClockBackIsIgnored,
    RemainingBeforeTheCharge,
    ResetTooEarly,
    SettleRefundsNothing,
    SettleRefundsTheOldestFirst,
    /// A charge beyond a grant reports what it should have charged.
    ChargeDoesNothing,
    /// What exceeds the quota is forgiven: there is no debt.
    ChargeStopsAtTheLimit,
    /// Debt exceeds one more capacity.
    DebtHasNoEnd,
    NoDebtIsReported,
    /// A charge is recorded with the time one window later.
    ChargeLandsInTheNextWindow,
    /// A window begins again with a charge.
    ChargeRenewsTheWindow,
    /// A look forgives the debt of a window that began with a request.
    LookForgivesDebt,
    /// A class of requests leaves nothing to others.
    ClassTakesAll,
    /// A class of a bucket gets less of the rate, as of the burst.
    ClassHasItsShareOfTheRate,
    /// A class is refused until all that was used is refilled.
    ClassWaitsUntilFull,
    /// A class owes by its own capacity.
    ClassOwesAlone,
    UsageIgnoresTheInterval,
    UsageCharges,
}

/// A mistake of a store of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotMistake {
    None,
    /// A release of a slot that is not held frees another.
    SecondReleaseFrees,
    /// Slots are counted: any release frees one, and all have the same identity.
    OnlyCounts,
    /// Identities begin again when no slot is left.
    NumbersBeginAgain,
    /// A set that a rate refuses takes its slots.
    RefusedSetTakesSlots,
    /// A set that finds no slot charges its rates.
    RefusedSetTakesRates,
    TakesTwo,
    /// A set that is granted several times takes one slot.
    TakesOneForSeveral,
    /// A release of several frees the first.
    ReleasesTheFirst,
    /// A release frees no more than the limit.
    ReleasesUpToTheLimit,
    /// Slots of a grant have one identity.
    ReleasesTheGrant,
    /// A cost of 2 takes two slots.
    CostsAddUp,
    /// A denial of several slots at least waits for ever.
    SeveralNeverPass,
    /// A denial of more slots than the limit reports a wait.
    SeveralAlwaysWait,
    /// Looks under one lock and claims under another.
    LooksThenClaims,
    TtlIsInTheScope,
    LimitIsInTheScope,
    ResetKeepsSlots,
    RenewalDoesNothing,
    RenewalIgnoresTheLimit,
    RenewalTakesNothingAgain,
    /// An unknown slot is reported as held and is not taken.
    RenewalOnlyReports,
    /// Any answer holds all slots of the key for another time to live.
    AnswersRenew,
    TtlEndsEarly,
    TtlNeverEnds,
    WaitIsTheTtl,
    /// A denial waits for the first time to live, even if more have to end.
    WaitIsTheFirst,
    /// A refusal under a shorter time to live ends slots of a longer one.
    CutsLongerTimes,
    /// A clock that steps back leaves slots ahead.
    KeepsTheFuture,
}
