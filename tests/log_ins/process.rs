//! A server of log-ins, of which tests start four. It limits them as the example `login` does.
//! Failures of an address are charged before the wait for a slot of the name. Failures of the name
//! are charged before the check, and start a block.

mod plan;

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tollgate::failure::{Answering, Fixed, Guarded};
use tollgate::{Algorithm, Denial, Key, Limiter, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_tests::{Claims, serve};

use plan::failures;

#[derive(Clone)]
struct LogIns {
    turns: Limiter<Answering<Guarded<RedisStore>, Fixed>>,
    names: Limiter<Answering<RedisStore, Fixed>>,
    addresses: Limiter<Answering<RedisStore, Fixed>>,
    /// A line for each password that was checked.
    checked: Arc<File>,
}

impl LogIns {
    /// Whether the password is `right`, if it may be checked. Failures of an address count if it is
    /// known.
    async fn try_password(&self, address: Option<Key>, name: &str, password: &str) -> Result<bool, Denial> {
        let cost = u64::from(address.is_some());
        let by_address = self.addresses.check(&address.unwrap_or(Key::global()), cost).await?;
        let checked = self.check_in_turn(name, password).await;
        if !matches!(checked, Ok(false)) {
            by_address.refund().await;
        }
        checked
    }

    async fn check_in_turn(&self, name: &str, password: &str) -> Result<bool, Denial> {
        let key = Key::from(name);
        let _turn = self.turns.until_ready(&key, 1, Duration::from_secs(60)).await?;
        let permit = self.names.check(&key, 1).await?;
        // One call for each line.
        (&*self.checked).write_all(format!("{name}\n").as_bytes()).expect("the journal is written");
        sleep(Duration::from_millis(if password == "slow" { 60_000 } else { 50 })).await;
        let is_right = password == "right";
        if is_right {
            permit.refund().await;
            self.names.reset(&key).await;
        }
        Ok(is_right)
    }
}

async fn log_in(
    State(log_ins): State<LogIns>,
    Path((name, password)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let address = headers.get("x-address").map(|address| Key::from_bytes(address.as_bytes()));
    let address = address.filter(|address| !address.is_empty());
    match log_ins.try_password(address, &name, &password).await {
        Ok(true) => StatusCode::OK.into_response(),
        Ok(false) => StatusCode::UNAUTHORIZED.into_response(),
        Err(denial) => denial.into_response(),
    }
}

/// `URL JOURNAL TTL HASTE` prints the address. The time to live of a turn, and how long a caller
/// waits for the answer to a claim, are in milliseconds. Serves until its input ends.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [url, journal, ttl, haste] = words else { panic!("what is {words:?}?") };
    let millis = |word: &str| word.parse().map(Duration::from_millis);
    // A busy machine is no outage.
    let store = RedisStore::builder(url).response_timeout(Duration::from_secs(60)).connect().await?;
    let claims = Claims::route(&store);
    let of_addresses = Policy::new("address", Quota::per_hour(5)).with_algorithm(Algorithm::SLIDING_LOG);
    let turns = store.clone().timeout(millis(haste)?).fail_closed();
    let log_ins = LogIns {
        turns: Limiter::new([plan::turns(millis(ttl)?)]).store(turns),
        names: Limiter::new([failures()]).store(store.clone().fail_closed()),
        addresses: Limiter::new([of_addresses]).store(store.fail_closed()),
        checked: Arc::new(File::create(journal)?),
    };
    let app = Router::new().route("/{name}/{password}", get(log_in)).with_state(log_ins);
    let app = app.route("/claims", claims);
    println!("{}", serve(app).await);
    spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}
