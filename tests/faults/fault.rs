//! Faults of a server, of a master under Sentinels and of a Cluster, and their effect on requests.

use std::time::Duration;

use tollgate::store::ErrorKind;
use tollgate_tests::Way;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Killed,
    Stopped,
    ClientsPaused,
    ScriptsFlushed,
    MemoryFull,
    MemoryFullAndEvicting,
    PasswordSet,
    MadeReplica,
    /// On the path to a server.
    Behind(Way),
    /// Existing connections pass nothing any more.
    Stranded,
    MasterLost,
    SlotMoves,
    ClusterMasterLost,
    ClusterMasterLostForGood,
}

/// What a fault does to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The store decides as always.
    None,
    /// Each request to the store fails in one of these ways while the fault lasts.
    Every(&'static [ErrorKind]),
    /// Some requests fail in one of these ways, and the store decides the others.
    Some(&'static [ErrorKind]),
}

impl Fault {
    pub(crate) const EVERY: [Fault; 18] = [
        Fault::Killed,
        Fault::Stopped,
        Fault::ClientsPaused,
        Fault::ScriptsFlushed,
        Fault::MemoryFull,
        Fault::MemoryFullAndEvicting,
        Fault::PasswordSet,
        Fault::MadeReplica,
        Fault::Behind(Way::IsClosed),
        Fault::Behind(Way::IsSilent),
        Fault::Behind(Way::HoldsAnswersBack),
        Fault::Behind(Way::IsSlow(LATE)),
        Fault::Behind(Way::LosesAnswersOfScripts),
        Fault::Stranded,
        Fault::MasterLost,
        Fault::SlotMoves,
        Fault::ClusterMasterLost,
        Fault::ClusterMasterLostForGood,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Killed => "kill -9, restart",
            Fault::Stopped => "SIGSTOP, SIGCONT",
            Fault::ClientsPaused => "CLIENT PAUSE",
            Fault::ScriptsFlushed => "SCRIPT FLUSH, again and again",
            Fault::MemoryFull => "maxmemory reached, noeviction",
            Fault::MemoryFullAndEvicting => "maxmemory reached, allkeys-lru",
            Fault::PasswordSet => "CONFIG SET requirepass, clients killed",
            Fault::MadeReplica => "made a replica (READONLY)",
            Fault::Behind(Way::IsClosed) => "connections cut, and closed at once",
            Fault::Behind(Way::IsSilent) => "accepts, never answers",
            Fault::Behind(Way::HoldsAnswersBack) => "asked, answers stall",
            Fault::Behind(Way::IsSlow(_)) => "answers late",
            Fault::Behind(Way::LosesAnswersOfScripts) => "reply lost after the charge",
            Fault::Behind(_) => "on the way",
            Fault::Stranded => "open connections pass nothing",
            Fault::MasterLost => "Sentinel: master killed",
            Fault::SlotMoves => "Cluster: slot migrates",
            Fault::ClusterMasterLost => "Cluster: master killed",
            Fault::ClusterMasterLostForGood => "Cluster: master and replica killed",
        }
    }

    pub(crate) fn effect(self) -> Effect {
        use ErrorKind::{Misconfigured, Timeout, Unavailable};
        match self {
            Fault::ScriptsFlushed | Fault::MemoryFullAndEvicting | Fault::SlotMoves => Effect::None,
            // Calls in flight when clients are killed, and connections to a server that does not
            // answer yet.
            Fault::PasswordSet => Effect::Every(&[Misconfigured, Unavailable, Timeout]),
            // Denials write nothing, so they are decided.
            Fault::MemoryFull | Fault::MadeReplica => Effect::Some(&[Timeout, Unavailable]),
            Fault::Stranded | Fault::ClusterMasterLost | Fault::ClusterMasterLostForGood => {
                Effect::Some(&[Timeout, Unavailable])
            }
            _ => Effect::Every(&[Timeout, Unavailable]),
        }
    }

    /// How long callers wait for the store. If no request may fail, a slow machine must not make
    /// one late.
    pub(crate) fn timeout(self) -> Duration {
        match self.effect() {
            Effect::None => Duration::from_secs(10),
            _ => Duration::from_millis(50),
        }
    }

    /// Whether Redis may forget charges. A limiter cannot detect that.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Fault::MemoryFullAndEvicting | Fault::ClusterMasterLostForGood)
    }

    /// Long enough for breakers to open and for probes to fail.
    pub(crate) fn lasts(self) -> Duration {
        match self {
            // It ends by itself, about ten milliseconds later.
            Fault::ClientsPaused => PAUSE,
            _ => Duration::from_millis(1_200),
        }
    }
}

const LATE: Duration = Duration::from_millis(200);
pub(crate) const PAUSE: Duration = Duration::from_millis(1_200);
