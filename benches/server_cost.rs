//! What a server of Redis says that it has cost.

use tollgate_test_servers::Server;

/// The time in scripts, and processor time, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerCost {
    /// The time in scripts.
    pub script: f64,
    /// The processor time.
    pub processor: f64,
}

impl ServerCost {
    /// That of a server since its start.
    pub fn of(server: &Server) -> ServerCost {
        let info = |section| server.command(&["INFO", section]).expect("a text");
        let number = |text: &str, name: &str| -> f64 {
            let (_, rest) = text.split_once(name).unwrap_or(("", "0"));
            let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            digits.parse().unwrap_or(0.0)
        };
        let stats = info("commandstats");
        let stats = stats.split_once("cmdstat_evalsha:").map_or("", |(_, stats)| stats);
        let cpu = info("cpu");
        let seconds = number(&cpu, "used_cpu_user:") + number(&cpu, "used_cpu_sys:");
        ServerCost { script: number(stats, "usec="), processor: seconds * 1e6 }
    }
}
