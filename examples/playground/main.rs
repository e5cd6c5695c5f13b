//! The playground: see `lib.rs`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    playground::run().await
}
