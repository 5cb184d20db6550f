//! `leasehold completions`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::Failure;
use crate::output;

pub(crate) fn print(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leasehold", &mut script);
    output::write(&script)?;
    Ok(0)
}
