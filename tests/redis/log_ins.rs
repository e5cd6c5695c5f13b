//! Log-ins over a fleet, as the example `login` limits them: a slot for the name, a count of
//! failures that is charged before the check, and a block.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::failure::FailurePolicy;
use tollgate::{Algorithm, Key, Limiter, Policy, Quota, Reason, StoreExt};
use tollgate_conformance::servers::Kind;
use tollgate_redis::RedisStore;

use crate::{Fresh, eventually, shared};

const PROCESSES: usize = 4;
const BLOCK: Duration = Duration::from_secs(900);

/// What one server has.
#[derive(Clone)]
struct LogIns {
    turns: Limiter<FailurePolicy<RedisStore>>,
    failures: Limiter<FailurePolicy<RedisStore>>,
    checked: Arc<AtomicUsize>,
}

impl LogIns {
    fn on(store: RedisStore, checked: &Arc<AtomicUsize>) -> LogIns {
        let failures = Policy::new("name", Quota::per_hour(5)).with_algorithm(Algorithm::SLIDING_LOG);
        LogIns {
            turns: Limiter::new([Policy::in_flight("turn", 1)]).store(store.clone().fail_closed()),
            failures: Limiter::new([failures.block_after(20, BLOCK)]).store(store.fail_closed()),
            checked: Arc::clone(checked),
        }
    }

    /// Whether the password is right, or why it was not checked.
    async fn try_password(&self, name: &str, is_right: bool) -> Result<bool, Reason> {
        let name = Key::from(name);
        let refused = |denial: tollgate::Denial| denial.reason();
        let _turn = self.turns.until_ready(&name, 1, Duration::from_secs(60)).await.map_err(refused)?;
        let permit = self.failures.check(&name, 1).await.map_err(refused)?;
        self.checked.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(10)).await;
        if is_right {
            self.failures.refund(permit).await;
            self.failures.reset(&name).await;
        }
        Ok(is_right)
    }
}

/// The servers of a fleet, each with a connection of its own.
async fn fleet(fresh: &Fresh, checked: &Arc<AtomicUsize>) -> Vec<LogIns> {
    let mut fleet = Vec::new();
    for _ in 0..PROCESSES {
        fleet.push(LogIns::on(fresh.again(&shared(Kind::Valkey9_1).url()).await, checked));
    }
    fleet
}

/// Tries these passwords at once, each on another server.
async fn at_once(fleet: &[LogIns], name: &'static str, are_right: &[bool]) -> Vec<Result<bool, Reason>> {
    let tries: JoinSet<_> = are_right
        .iter()
        .zip(fleet.iter().cycle())
        .map(|(&is_right, server)| {
            let server = server.clone();
            async move { server.try_password(name, is_right).await }
        })
        .collect();
    tries.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_log_ins_at_once_all_pass_and_a_typo_locks_none() {
    let (fresh, checked) = (Fresh::on(shared(Kind::Valkey9_1)).await, Arc::default());
    let fleet = fleet(&fresh, &checked).await;
    assert_eq!(at_once(&fleet, "ada", &[true; 10]).await, [Ok(true); 10]);
    for _ in 0..3 {
        let answers = at_once(&fleet, "bob", &[true, true, false, true, true]).await;
        assert_eq!(answers.iter().filter(|answer| **answer == Ok(true)).count(), 4, "{answers:?}");
    }
    assert_eq!(fleet[0].failures.blocked("name", &Key::from("bob")).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_guesses_five_are_checked_and_then_the_name_is_blocked() {
    let (fresh, checked) = (Fresh::on(shared(Kind::Valkey9_1)).await, Arc::default());
    let fleet = fleet(&fresh, &checked).await;
    let answers = at_once(&fleet, "ada", &[false; 1_000]).await;
    let wrong = answers.iter().filter(|answer| **answer == Ok(false)).count();
    assert_eq!((wrong, checked.load(Ordering::Relaxed)), (5, 5));
    let ada = Key::from("ada");
    for server in &fleet {
        eventually("the block starts", async || server.failures.blocked("name", &ada).await.is_some()).await;
        let left = server.failures.blocked("name", &ada).await.expect("a block");
        assert!(left <= BLOCK && left > BLOCK / 2, "{left:?}");
        assert_eq!(server.try_password("ada", true).await, Err(Reason::Blocked));
        assert_eq!(server.try_password("bob", true).await, Ok(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_gains_no_guess() {
    let (fresh, checked) = (Fresh::on(shared(Kind::Valkey9_1)).await, Arc::<AtomicUsize>::default());
    let fleet = fleet(&fresh, &checked).await;
    for n in 0..5 {
        let server = &fleet[n % PROCESSES];
        let mut guess = Box::pin(server.try_password("ada", false));
        // Leaves during the check.
        while checked.load(Ordering::Relaxed) <= n {
            assert!(timeout(Duration::from_millis(1), &mut guess).await.is_err(), "{n}: it was refused");
        }
        drop(guess);
    }
    assert_eq!(fleet[0].try_password("ada", false).await, Err(Reason::QuotaExceeded));
    assert_eq!(checked.load(Ordering::Relaxed), 5);
}
