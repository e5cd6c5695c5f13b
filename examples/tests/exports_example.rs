//! The example of long exports.

use std::time::Duration;

use reqwest::{Client, Response};
use tokio::time::sleep;
use tollgate_examples::testing::Program;

use crate::program::start;

struct Exports(Program, Client);

impl Exports {
    fn start() -> Exports {
        Exports(start("exports", &["127.0.0.1:0"]), Client::new())
    }

    async fn ask(&self, api_key: &str, rows: u64) -> Response {
        let url = format!("http://{}/export/{rows}", self.0.address());
        self.1.get(url).header("x-api-key", api_key).send().await.expect("an answer")
    }
}

#[tokio::test]
async fn the_exports_example_refuses_the_third_export_after_a_wait() {
    let exports = Exports::start();
    let running = [exports.ask("ada", 1_000).await, exports.ask("ada", 1_000).await];
    let fields = running[1].headers()["ratelimit"].to_str().unwrap();
    assert!(fields.ends_with(r#", "exports";r=0"#), "{fields}");
    assert_eq!(exports.ask("bob", 1).await.status(), 200);
    let refused = exports.ask("ada", 1).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert!(refused.text().await.unwrap().contains(r#""violated-policies":["exports"]"#));
}

#[tokio::test]
async fn the_exports_example_starts_the_third_export_when_one_ends() {
    let exports = Exports::start();
    let mut running = vec![exports.ask("ada", 1_000).await, exports.ask("ada", 1_000).await];
    assert_eq!(running[0].chunk().await.unwrap().unwrap(), "1,ada\n");
    let client_leaves = async {
        sleep(Duration::from_millis(300)).await;
        running.pop();
    };
    let (third, ()) = tokio::join!(exports.ask("ada", 3), client_leaves);
    assert_eq!(
        (third.status(), third.text().await.unwrap().as_str()),
        (200.try_into().unwrap(), "1,ada\n2,ada\n3,ada\n")
    );
}
