//! `leasehold man`.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::exit::Failure;
use crate::output;

pub(crate) fn print(args: &ManArgs) -> Result<u8, Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    if let Some(directory) = &args.dir {
        let pages = std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(command, directory));
        let message = format!("{} cannot be written", directory.display());
        return pages
            .map(|()| 0)
            .map_err(|error| Failure::own(message, error));
    }
    // The page of the program, then those of its commands.
    let mut pages = Vec::new();
    std::iter::once(&command)
        .chain(command.get_subcommands())
        .try_for_each(|command| Man::new(command.clone()).render(&mut pages))
        .map_err(|error| Failure::own("the manual page cannot be created", error))?;
    output::write(&pages)?;
    Ok(0)
}
