//! Limits for any Tower service, not only over `http::Request`: a `reqwest::Client`, a database
//! pool, a queue of jobs.
//!
//! A [`CallLimitLayer`] asks a [`Limiter`](crate::Limiter) before each call: the same policies,
//! stores and failure policies. Its refusal is an error, [`CallError`], because it cannot know
//! what a response is.
//!
//! ```
//! use std::convert::Infallible;
//! use tollgate::calls::{CallError, CallLimitLayer};
//! use tollgate::{Key, Limiter, Policy, Quota};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! struct Job { tenant: u64, rows: u64 }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limiter = Limiter::new([Policy::new("rows", Quota::per_minute(1_000))]);
//! let mut jobs = ServiceBuilder::new()
//!     .layer(CallLimitLayer::new(limiter, |job: &Job| Some(Key::from(job.tenant))).cost(|job| job.rows))
//!     .service(service_fn(async |job: Job| Ok::<_, Infallible>(job.rows)));
//!
//! let done = jobs.ready().await.unwrap().call(Job { tenant: 7, rows: 900 }).await;
//! assert_eq!(done.unwrap(), 900);
//! let refused = jobs.ready().await.unwrap().call(Job { tenant: 7, rows: 200 }).await;
//! let Err(CallError::Denied(denial)) = refused else { panic!("the quota is 1,000 rows") };
//! assert_eq!(denial.retry_after_seconds(), Some(6));
//! # }
//! ```

mod layer;
mod service;

pub use crate::decision::CallError;
pub use layer::CallLimitLayer;
pub use service::CallLimit;
