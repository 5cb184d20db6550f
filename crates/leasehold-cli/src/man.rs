//! `leasehold man`.

use std::fs;
use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::exit::Failure;
use crate::{help, output};

pub(crate) fn print(args: &ManArgs) -> Result<u8, Failure> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut commands = Vec::new();
    collect(&root, &mut commands);
    let names: Vec<_> = commands.iter().map(|command| name(command)).collect();
    let mut all_pages = Vec::new();
    if let Some(directory) = &args.dir {
        fs::create_dir_all(directory).map_err(|error| cannot_write(directory, error))?;
    }
    for command in commands {
        let page = page(command, &names)
            .map_err(|error| Failure::own("the manual page cannot be created", error))?;
        match &args.dir {
            Some(directory) => {
                let file = directory.join(format!("{}.1", name(command)));
                fs::write(&file, page).map_err(|error| cannot_write(&file, error))?;
            }
            None => all_pages.extend(page),
        }
    }
    output::print_bytes(&all_pages)?;
    Ok(0)
}

fn cannot_write(path: &std::path::Path, error: io::Error) -> Failure {
    Failure::own(format!("{} cannot be written", path.display()), error)
}

/// A command and the commands below it.
fn collect<'a>(command: &'a Command, commands: &mut Vec<&'a Command>) {
    commands.push(command);
    for command in command.get_subcommands() {
        collect(command, commands);
    }
}

/// The name of a page, such as `leasehold-run`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// The page of a command. `names` are those of all pages.
fn page(command: &Command, names: &[&str]) -> io::Result<Vec<u8>> {
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command.clone()).source(format!("leasehold {version}"));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut sections = help::LEASEHOLD.split("\n\n");
    let environment = sections.find(|section| section.starts_with("ENVIRONMENT"));
    let environment = environment.unwrap_or_default();
    let own = command.get_after_long_help().map(ToString::to_string);
    let mut text = own.unwrap_or_default();
    if !text.contains(environment) {
        // Before the examples, as in other manuals.
        text = text.replacen("EXAMPLES\n", &format!("{environment}\n\nEXAMPLES\n"), 1);
    }
    let others = names.iter().filter(|other| **other != name(command));
    let others: Vec<_> = others.map(|name| format!("{name}(1)")).collect();
    let see_also = format!("SEE ALSO\n{}, flock(1)", others.join(", "));
    write_sections(&mut page, &format!("{text}\n\n{see_also}"));
    Ok(page)
}

/// Writes a text as those of [`help`] as sections: headings, paragraphs, and indented lines as they are. Its last line is not
/// indented.
fn write_sections(page: &mut Vec<u8>, text: &str) {
    let is_heading = |line: &str| {
        line.starts_with(|c: char| c.is_ascii_uppercase())
            && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ')
    };
    let mut indented = false;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with(' ') != indented {
            let fill: &[u8] = if indented { b".fi\n" } else { b".nf\n" };
            page.extend(fill);
            indented = !indented;
        }
        let text = line.replace('\\', "\\e").replace('-', "\\-");
        let text = match line {
            // A heading and the end of the text need none.
            "" if lines.peek().is_none_or(|next| is_heading(next)) => continue,
            "" => ".PP\n".to_owned(),
            line if is_heading(line) => format!(".SH {text}\n"),
            // A line that begins with a dot or an apostrophe would be a request.
            _ => format!("\\&{text}\n"),
        };
        page.extend(text.into_bytes());
    }
}
