//! Policies with keys and costs of their own: requests of a user, and tokens of a tenant.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{Key, Limiter, MemoryStore, Outcome, Policy, Question, Quota, Reason, Wait};
use tollgate_tests::{clock, per_minute, store, timed};

fn limits() -> Limiter<MemoryStore> {
    Limiter::new([per_minute("requests", 3), per_minute("tokens", 100)]).store(store(&clock()))
}

fn keys() -> (Key, Key) {
    (Key::from("ada"), Key::from("acme"))
}

#[tokio::test]
async fn each_policy_charges_its_own_cost_to_its_own_key() {
    let (limits, (ada, acme)) = (limits(), keys());
    let permit = limits.check_each(&[("tokens", &acme, 60), ("requests", &ada, 1)]).await.unwrap();
    let left = |name| permit.report().get(name).unwrap().1.remaining();
    assert_eq!((left("requests"), left("tokens")), (2, 40));
    // All or none: the tenant has no tokens for it, so the user is not charged.
    let denial = limits.check_each(&[("requests", &ada, 1), ("tokens", &acme, 60)]).await.unwrap_err();
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["tokens"]);
    let report = limits.look_each(&[("requests", &ada)]).await.unwrap();
    assert_eq!(report.get("requests").unwrap().1.remaining(), 2);
    assert!(report.get("tokens").is_none());
}

#[tokio::test]
async fn a_look_says_whether_one_unit_would_pass() {
    let (limits, (ada, _)) = (limits(), keys());
    let wait = async || limits.look(&ada).await.unwrap().get("requests").unwrap().1.wait();
    limits.check_each(&[("requests", &ada, 2)]).await.map(drop).unwrap();
    assert_eq!(wait().await, Wait::None);
    limits.check_each(&[("requests", &ada, 1)]).await.map(drop).unwrap();
    assert_eq!(wait().await, Wait::For(Duration::from_secs(20)));
}

#[tokio::test]
async fn a_policy_that_is_left_out_is_not_seen() {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let seen_too = Arc::clone(&seen);
    let limits = limits().observe(move |decision| {
        seen_too.lock().unwrap().push((decision.policy().name().to_owned(), decision.outcome()));
    });
    let (_, acme) = keys();
    limits.check_each(&[("tokens", &acme, 100)]).await.map(drop).unwrap();
    let decided = [("tokens", Outcome::Allowed)];
    assert_eq!(*seen.lock().unwrap(), decided.map(|(name, outcome)| (name.to_owned(), outcome)));
    // Nothing is asked of no policy.
    assert!(limits.check_each::<Question<'_>>(&[]).await.is_ok());
}

#[tokio::test]
async fn an_empty_key_names_the_policy_that_needs_it() {
    let (limits, (ada, empty)) = (limits(), (Key::from("ada"), Key::from("")));
    let denial = limits.check_each(&[("requests", &ada, 1), ("tokens", &empty, 1)]).await.unwrap_err();
    assert_eq!(denial.reason(), Reason::NoKey);
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["tokens"]);
    assert_eq!(limits.look(&ada).await.unwrap().statuses()[0].remaining(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_patience_names_the_policy_that_needs_longest() {
    let (limits, (ada, acme)) = (limits(), keys());
    limits.check_each(&[("requests", &ada, 3), ("tokens", &acme, 100)]).await.map(drop).unwrap();
    let asked = [("tokens", &acme, 10), ("requests", &ada, 1)];
    let (refused, waited) = timed(limits.until_ready_each(&asked, Duration::from_secs(19))).await;
    assert_eq!(refused.unwrap_err().retry_after(), Some(Duration::from_secs(20)));
    assert_eq!(waited, Duration::ZERO);
}

/// In real time. The order in which a caller names the policies makes no second queue.
#[tokio::test]
async fn callers_of_one_set_pass_in_the_order_of_arrival() {
    let quota = Quota::per_second(20).burst(1);
    let limits = Limiter::new([Policy::new("requests", quota), Policy::new("tokens", quota)]);
    let (ada, acme) = keys();
    let passed = Mutex::<Vec<usize>>::default();
    let call = async |caller: usize| {
        let mut asked = [("requests", &ada, 1), ("tokens", &acme, 1)];
        if caller.is_multiple_of(2) {
            asked.reverse();
        }
        limits.until_ready_each(&asked, Duration::from_secs(60)).await.map(drop).unwrap();
        passed.lock().unwrap().push(caller);
    };
    let (calls, waited) = timed(async { tokio::join!(call(0), call(1), call(2), call(3), call(4)) }).await;
    let ((), (), (), (), ()) = calls;
    assert_eq!(*passed.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert!(waited >= Duration::from_millis(199), "{waited:?}");
}

#[tokio::test]
#[should_panic(expected = "the limiter has no policy \"token\": its policies are [\"requests\", \"tokens\"]")]
async fn a_policy_that_is_not_there_panics_with_the_names() {
    let (ada, _) = keys();
    let _ = limits().check_each(&[("token", &ada, 1)]).await;
}

#[tokio::test]
#[should_panic(expected = "the policy \"tokens\" is asked twice")]
async fn a_policy_that_is_asked_twice_panics() {
    let (ada, acme) = keys();
    let _ = limits().check_each(&[("tokens", &ada, 1), ("requests", &ada, 1), ("tokens", &acme, 1)]).await;
}
