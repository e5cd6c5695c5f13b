//! What is sent to Redis, and its answers.

pub(crate) mod args;
pub(crate) mod layout;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod script;
