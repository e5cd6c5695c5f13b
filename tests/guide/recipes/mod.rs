//! The recipes, each with what it promises.

mod graphql;
mod health_checks;
mod json_error;
mod jwt;
mod log_in;
mod one_store;
mod proxies;
mod reqwest_client;
mod store_of_a_test;
mod web_sockets;
