//! Uses the programs to copy as their users do: by command line and over the network. Also checks
//! the README of the repository.
//!
//! Tests assert answers, and that a wait was long enough, but never that something was fast.

mod behind_proxy_example;
mod client_example;
mod exports_example;
mod hello_example;
mod hyper_example;
mod job_queue_example;
mod llm_gateway_example;
mod login_example;
mod polled_limits_example;
mod program;
mod readme;
mod redis_example;
mod reqwest_example;
mod stack_example;
mod tiers_example;
mod tonic_example;
