//! A client of an API with a limit, which tests start three times.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use tollgate::{Key, Limiter, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_tests::Client;

/// `URL PREFIX API LIMIT SECONDS paced|as-it-is` calls the API until it is killed.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [url, prefix, api, limit, seconds, form] = words else { panic!("what is {words:?}?") };
    let quota = Quota::try_new(limit.parse()?, Duration::from_secs(seconds.parse()?))?;
    let quota = if form == "paced" { quota.paced() } else { quota };
    let store = RedisStore::builder(url).prefix(&**prefix).connect().await?;
    let store = store.timeout(Duration::from_secs(5)).fail_closed();
    let calls = Limiter::new([Policy::new("calls", quota)]).store(store);
    let key = Key::from("api.example.com");
    let mut client = Client::connect(api.parse::<SocketAddr>()?).await;
    loop {
        let _permit = calls.until_ready(&key, 1, Duration::from_secs(60)).await?;
        client.get("/", &[]).await;
    }
}
