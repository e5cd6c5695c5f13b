//! A process of a fleet, with a clock of its own.

use std::error::Error;
use std::io;
use std::time::Duration;

use tollgate::store::Boundaries;
use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, MemoryStore, Policy, Quota, Wait};
use tollgate_redis::RedisStore;

/// `URL LIMIT BOUNDARY...`: for each line of the input, one unit of `LIMIT` in the windows between
/// these boundaries. Prints the end of the window that pays for it, or the wait for the next. The
/// URL `memory` is a store in memory.
#[tokio::main]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [url, limit, boundaries @ ..] = words else { panic!("what is {words:?}?") };
    let boundaries: Vec<u64> = boundaries.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let boundaries = Boundaries::try_new(boundaries.leak())?;
    let quota = Quota::try_new(limit.parse()?, Duration::from_secs(3_600))?;
    let policy = Policy::try_from_parts("hourly", quota, Algorithm::CalendarWindow { boundaries })?;
    match url.as_str() {
        "memory" => answer(&MemoryStore::new(), &policy).await,
        url => answer(&RedisStore::connect(url).await?, &policy).await,
    }
}

async fn answer<S: Store<Error: Error + 'static>>(store: &S, policy: &Policy) -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lines() {
        let key = Key::from(line?);
        let verdict = store.acquire(&[Check::new(policy, &key, 1)], Times::ONCE).wait().await?;
        match verdict.wait() {
            Wait::None => println!("granted {}", verdict.each()[0].stamp().micros()),
            Wait::For(wait) => println!("denied {}", wait.as_micros()),
            Wait::Never => println!("never 0"),
        }
    }
    Ok(())
}
