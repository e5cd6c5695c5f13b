//! Compares tollgate with its peers in one run: what a layer adds to a request, and how many
//! decisions go through Redis.
//!
//! README.md says what is measured and how to read it.

mod contenders;
mod measure;
mod memory;
mod over_cluster;
mod over_redis;
mod report;
mod scenario;
mod summary;
mod targets;

use std::error::Error;

use clap::{Parser, Subcommand};

/// Compares rate limiters for Tower and prints the result as markdown.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    comparison: Option<Comparison>,
    // Options of the default comparison.
    #[command(flatten)]
    memory: memory::Options,
}

#[derive(Debug, Subcommand)]
enum Comparison {
    /// What each layer adds to a request with its state in memory; the default.
    Memory(memory::Options),
    /// How many decisions each contender makes through Redis, and what they cost the server.
    Redis(over_redis::Options),
    /// tollgate over one server and over a Cluster, with and without leases.
    Cluster(over_cluster::Options),
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = Options::parse();
    match options.comparison.unwrap_or(Comparison::Memory(options.memory)) {
        Comparison::Memory(options) => print!("{}", memory::run(&options)),
        Comparison::Cluster(options) => print!("{}", over_cluster::run(&options)?),
        Comparison::Redis(options) => print!("{}", over_redis::run(&options)?),
    }
    Ok(())
}
