//! What tests start as processes of their own, to kill them or to give them another environment.
//! `FOLDER WORD...` runs the `process.rs` of that folder.

use std::error::Error;

#[path = "calendar/process.rs"]
mod calendar;
#[path = "gateways/process.rs"]
mod gateways;
#[path = "log_ins/process.rs"]
mod log_ins;
#[path = "programs/process.rs"]
mod programs;
#[path = "rows/process.rs"]
mod rows;
#[path = "rules/process.rs"]
mod rules;
#[path = "slots/process.rs"]
mod slots;
#[path = "usage/process.rs"]
mod usage;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (folder, words) = words.split_first().expect("the name of a folder");
    match folder.as_str() {
        "calendar" => calendar::run(words),
        "gateways" => gateways::run(words),
        "log_ins" => log_ins::run(words),
        "programs" => programs::run(words),
        "rows" => rows::run(words),
        "rules" => rules::run(words),
        "slots" => slots::run(words),
        "usage" => usage::run(words),
        _ => panic!("no process is called {folder:?}"),
    }
}
