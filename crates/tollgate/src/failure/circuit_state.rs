//! What a circuit breaker does with requests.

/// The state of a circuit breaker: which requests reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// All requests reach the store.
    Closed,
    /// No request reaches the store, which failed too often.
    Open,
    /// One request, the probe, reaches the store to see whether it is back.
    HalfOpen,
}

impl CircuitState {
    /// The name in logs and metrics, such as `half-open`.
    pub const fn name(self) -> &'static str {
        match self {
            CircuitState::Closed => "closed",
            CircuitState::Open => "open",
            CircuitState::HalfOpen => "half-open",
        }
    }
}
