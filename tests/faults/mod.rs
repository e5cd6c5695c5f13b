//! Real faults of real servers, and what each failure policy makes of them. Requests pass through a
//! layer before, during and after a fault.
//!
//! Each run prints a table of all faults, even if a test fails. `TOLLGATE_FAULT=Sentinel` runs only
//! the faults with that word in their name. Faults that concern the store alone are in `redis`:
//! `lost.rs`, `scripts.rs`, `cluster`, `sentinel.rs`.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod caller;
mod clock;
mod fault;
mod idle;
mod policy;
mod promises;
mod run;
mod scene;
mod server;
mod storm;

use std::io::Write;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::faults::caller::Way;
use crate::faults::fault::Fault;
use crate::faults::run::Row;

pub(crate) use crate::faults::scene::kill_in_step;

/// How many faults run at a time. Most of a run is waiting, and a machine has few processors.
const AT_A_TIME: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_policy_keeps_its_promise_under_every_fault() {
    let chosen = std::env::var("TOLLGATE_FAULT").unwrap_or_default();
    let rows =
        Fault::EVERY.map(|fault| (fault, Way::InProcess)).into_iter().chain([(Fault::Killed, Way::Sockets)]);
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut running = JoinSet::new();
    for (n, (fault, way)) in rows.filter(|(fault, _)| fault.name().contains(&chosen)).enumerate() {
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire().await.unwrap();
            (n, run::run(fault, way).await)
        });
    }
    assert!(!running.is_empty(), "no fault is called {chosen:?}");
    let (mut rows, mut complaints) = (Vec::new(), Vec::new());
    while let Some(row) = running.join_next().await {
        match row {
            Ok(row) => rows.push(row),
            // The table still shows the other faults.
            Err(error) => complaints.push(error.to_string()),
        }
    }
    rows.sort_by_key(|(n, _)| *n);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let table: String = rows.iter().map(Row::lines).collect();
    // `println!` prints nothing if a test passes.
    let denial = caller::denial_in_memory().await;
    let text = format!("{}{table}(a denial in memory takes {denial:?})\n", promises::head());
    std::io::stdout().write_all(text.as_bytes()).unwrap();
    complaints.extend(rows.iter().flat_map(Row::complaints));
    assert!(complaints.is_empty(), "{complaints:#?}");
}
