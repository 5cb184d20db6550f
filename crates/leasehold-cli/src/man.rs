//! `leasehold man`.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::exit::Failure;
use crate::output;

pub(crate) fn print(args: &ManArgs) -> Result<u8, Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.dir {
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(|error| {
                Failure::own(format!("{} cannot be created", directory.display()), error)
            })?;
            for (name, page) in pages(&command)? {
                write_page(directory, &name, &page)?;
            }
        }
        // The page of the program, then those of its commands.
        None => {
            for (_, page) in pages(&command)? {
                output::write(&page)?;
            }
        }
    }
    Ok(0)
}

fn pages(command: &Command) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let subcommands = visible.map(|sub| {
        let name = format!("leasehold-{}", sub.get_name());
        (name.clone(), sub.clone().name(name))
    });
    std::iter::once(("leasehold".to_owned(), command.clone()))
        .chain(subcommands)
        .map(|(name, command)| {
            let mut page = Vec::new();
            Man::new(command)
                .render(&mut page)
                .map_err(|error| Failure::own("the manual page cannot be created", error))?;
            Ok((name, page))
        })
        .collect()
}

fn write_page(directory: &Path, name: &str, page: &[u8]) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    std::fs::write(&path, page)
        .map_err(|error| Failure::own(format!("{} cannot be written", path.display()), error))
}
