//! Programs as users write them: what other limiters were used for, with tollgate.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod basic_auth;
mod each_policy;
mod grpc_methods;
mod jobs;
mod jwt;
mod listener;
mod live_policies;
mod modes;
mod own_error;
mod paced;
mod paid_afterwards;
mod panics;
mod pauses;
mod ports;
mod queues;
mod reqwest_client;
mod rows;
mod until_ready;
