//! `tollgate usage`: what the processes of a fleet counted, and what policies tracked.

mod args;
mod series;
mod top;
mod totals;

use std::process::ExitCode;

use self::args::Question;
pub(crate) use self::args::UsageArgs;
use self::totals::Order;
use crate::output::print;

/// Prints the answer. Errors are one line.
pub(crate) async fn run(args: UsageArgs) -> Result<ExitCode, String> {
    let text = match &args.question {
        Question::Top(args) => top::table_of(args, "allowed").await?,
        Question::Denied(args) => top::table_of(args, "denied").await?,
        Question::Oldest(args) => totals::table_of(args, Order::Oldest).await?,
        Question::Newest(args) => totals::table_of(args, Order::Newest).await?,
        Question::Total(args) => totals::table_of(args, Order::Total).await?,
        Question::Series(args) => series::chart_of(args).await?,
    };
    print(&text).map(|()| ExitCode::SUCCESS)
}
