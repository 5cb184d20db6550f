//! The page of the command line describes what the parser and the help texts have, and no page calls the command in a way that
//! they have not.

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, CommandFactory as _};

use super::*;
use crate::{exit, help, variables};

const PAGE: &str = include_str!("../../../../docs/cli.md");

/// Other pages that call the command.
const PAGES: [&str; 7] = [
    "README.md",
    "docs/comparison.md",
    "docs/jobs.md",
    "docs/migrating.md",
    "docs/operations.md",
    "docs/recipes.md",
    "docs/watchdog.md",
];

/// The text of a page.
fn page(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::fs::read_to_string(format!("{root}/{path}")).unwrap()
}

/// The text below a heading, up to the next heading of its level.
fn section(heading: &str) -> &'static str {
    let (level, _) = heading.split_once(' ').unwrap();
    let (_, rest) = PAGE.split_once(&format!("\n{heading}\n")).unwrap();
    rest.split_once(&format!("\n{level} "))
        .map_or(rest, |(text, _)| text)
}

/// The pieces of code in a text.
fn code(text: &str) -> Vec<String> {
    let pieces = text.split('`').skip(1).step_by(2);
    pieces.map(|piece| piece.replace("\\|", "|")).collect()
}

/// The subcommands with the parts of the page that describe their options.
fn described() -> Vec<(clap::Command, &'static str)> {
    let (cli, store) = (Cli::command(), "## Options for the store");
    let command = |name: &str| cli.find_subcommand(name).unwrap().clone();
    let status = command("watchdog")
        .find_subcommand("status")
        .unwrap()
        .clone();
    let (intro, _) = PAGE.split_once("\n## ").unwrap();
    let listings = section("## `ls`, `show`, `release`");
    vec![
        (cli.clone(), section(store)),
        (command("run"), section("## `run`")),
        (command("once"), section("## `run`")),
        (command("elect"), section("## `run`")),
        (command("leader"), section("## `leader`, `watch`")),
        (command("watch"), section("## `leader`, `watch`")),
        (command("jobs"), section("## `jobs`")),
        (command("hold"), section("## `hold`")),
        (command("ls"), listings),
        (command("show"), listings),
        (command("release"), listings),
        (command("doctor"), section("## `doctor`")),
        (command("watchdog"), section("## `watchdog`")),
        (status, section("## `watchdog`")),
        (command("completions"), intro),
        (command("man"), intro),
    ]
}

/// An option as the page writes it.
fn usage(option: &Arg) -> String {
    let long = format!("--{}", option.get_long().unwrap());
    let value = match option.get_action() {
        ArgAction::Set | ArgAction::Append => option.get_value_names().unwrap()[0].as_str(),
        _ => return long,
    };
    let more = option.get_value_delimiter().map_or("", |_| ",...");
    let count = option.get_num_args();
    if count.is_some_and(|count| count.min_values() == 0 && count.max_values() > 1) {
        return format!("{long} [{value}...]");
    }
    match option.is_require_equals_set() {
        true => format!("{long}[={value}{more}]"),
        false => format!("{long} {value}{more}"),
    }
}

#[test]
fn the_page_describes_every_option_with_its_values_and_default() {
    for (command, text) in described() {
        for option in command.get_arguments() {
            if option.get_long().is_none() || option.is_hide_set() {
                continue;
            }
            let usage = usage(option);
            let is_usage = |piece: String| format!(" {piece} ").contains(&format!(" {usage} "));
            let named = |line: &&str| code(line).into_iter().any(is_usage);
            let line = text.lines().find(named);
            let line = line.unwrap_or_else(|| panic!("{usage} of {}", command.get_name()));
            let values = option.get_possible_values();
            let values = values.iter().map(|it| it.get_name().into());
            let defaults = option.get_default_values().iter();
            let stated = values.chain(defaults.map(|it| it.to_string_lossy()));
            // The page separates thousands.
            let line = line.replace(',', "");
            for value in stated.filter(|_| option.get_action().takes_values()) {
                assert!(line.contains(&*value), "{usage}: {value}");
            }
            if let Some(short) = option.get_short() {
                assert!(line.contains(&format!("`-{short}`")), "-{short}");
            }
        }
    }
}

/// The names of the options of a command.
fn options(command: &clap::Command) -> impl Iterator<Item = String> {
    command.get_arguments().flat_map(|option| {
        let long = option.get_long().map(|long| format!("--{long}"));
        let short = option.get_short().map(|short| format!("-{short}"));
        long.into_iter().chain(short)
    })
}

fn is_option(word: &&str) -> bool {
    let name = word.trim_start_matches('-');
    name.len() < word.len()
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
}

#[test]
fn every_option_in_a_page_exists() {
    let mut known = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
    for (command, _) in described() {
        known.extend(options(&command));
    }
    let watchdog = page("docs/watchdog.md");
    for piece in [PAGE, watchdog.as_str()].into_iter().flat_map(code) {
        let calls = |line: &&str| !piece.starts_with("sh\n") || line.contains("leasehold ");
        for line in piece.lines().filter(calls) {
            // Behind these are the arguments of a command.
            let words = line
                .split([' ', '[', '='])
                .take_while(|word| !["--", "-c"].contains(word));
            let unknown = |word: &&str| is_option(word) && !known.contains(*word);
            assert_eq!({ words }.find(unknown), None, "in {line:?}");
        }
    }
}

/// The arguments of the calls of `leasehold` in the code of a page, without the commands that they run.
fn calls(page: &str) -> impl Iterator<Item = Vec<&str>> {
    let code = page.split('`').skip(1).step_by(2);
    let commands = code.flat_map(|code| code.split(['\n', ';', '&', '|', '(']));
    commands.filter_map(|command| {
        let (before, arguments) = command.split_once("leasehold ")?;
        let path = before.split(' ').next_back().unwrap_or_default();
        let is_call = path.is_empty() || path.starts_with('/') && path.ends_with('/');
        if !is_call || before.contains("cargo") {
            return None;
        }
        let ends = |word: &&str| !["--", "-c", "#"].contains(word);
        Some(arguments.split_whitespace().take_while(ends).collect())
    })
}

#[test]
fn every_command_line_in_a_page_has_options_that_exist() {
    let mut cli = Cli::command();
    // Then the subcommands also have the options for the store.
    cli.build();
    let mut seen = 0;
    for path in PAGES {
        for words in calls(&page(path)) {
            let command = words.first().and_then(|word| cli.find_subcommand(word));
            let command = command.unwrap_or_else(|| panic!("{path}: {words:?}"));
            let nested = words.get(1).and_then(|word| command.find_subcommand(word));
            let known: Vec<_> = options(nested.unwrap_or(command)).collect();
            for word in &words {
                let name = word.split(['[', '=']).next().unwrap();
                if is_option(&name) {
                    assert!(
                        known.iter().any(|it| it == name),
                        "{path}: {name} in {words:?}"
                    );
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} options");
}

#[test]
fn the_page_describes_every_subcommand_and_no_other() {
    let cli = Cli::command();
    let commands: BTreeSet<_> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let (intro, sections) = PAGE.split_once("\n## ").unwrap();
    let headings = sections
        .split("\n## ")
        .map(|text| text.lines().next().unwrap());
    let named: BTreeSet<_> = headings.flat_map(code).collect();
    assert!(
        named.iter().all(|name| commands.contains(name.as_str())),
        "{named:?}"
    );
    for name in commands {
        let first = |piece: String| piece.split(' ').next() == Some(name);
        assert!(code(intro).into_iter().any(first), "{name}");
    }
}

/// The exit codes in a cell of the page, or in a word of a help text.
fn exit_codes(text: &str) -> Vec<u8> {
    let codes = text.split(", ").map(|code| code.trim().parse().ok());
    codes.collect::<Option<Vec<u8>>>().unwrap_or_default()
}

/// The exit codes in a help text.
fn exit_codes_of_help(help: &str) -> Vec<u8> {
    let (_, status) = help.split_once("EXIT STATUS").unwrap();
    let first_words = status.lines().filter_map(|it| it.split_whitespace().next());
    first_words.flat_map(exit_codes).collect()
}

#[test]
fn page_and_help_list_every_exit_code() {
    let run = [
        exit::REFUSED,
        exit::LOST,
        exit::TIMED_OUT,
        exit::FAILED,
        exit::NOT_EXECUTABLE,
        exit::NOT_FOUND,
    ];
    let hold = [0, exit::REFUSED, exit::LOST, exit::TIMED_OUT, exit::FAILED];
    for (heading, help, own) in [
        ("### Exit codes", help::RUN, &run[..]),
        ("### Exit codes of `hold`", help::HOLD, &hold),
    ] {
        let rows = section(heading).lines();
        let page: Vec<_> = rows
            .filter_map(|row| row.strip_prefix("| ")?.split(" |").next())
            .flat_map(exit_codes)
            .collect();
        assert_eq!(page, own);
        assert_eq!(exit_codes_of_help(help), own);
    }
}

#[test]
fn page_and_help_list_every_exit_code_of_other_commands() {
    let own = BTreeSet::from([
        ("show", exit::FREE),
        ("release", exit::FREE),
        ("leader", exit::NONE),
        ("jobs", exit::NONE),
        ("jobs", exit::OVERDUE),
        ("doctor", exit::WARNINGS),
        ("doctor", exit::DANGERS),
        ("watchdog status", exit::NONE),
    ]);
    let mut page = BTreeSet::new();
    let table = section("## Exit codes of other commands").lines();
    for row in table.filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').collect();
        for command in cells[1].split('`').skip(1).step_by(2) {
            page.extend(exit_codes(cells[2]).into_iter().map(|code| (command, code)));
        }
    }
    assert_eq!(page, own);
    for (command, _) in described() {
        let name = command.get_name();
        if ["leasehold", "run", "once", "elect", "hold"].contains(&name) {
            continue;
        }
        let of_command = own.iter().filter(|(command, _)| command.ends_with(name));
        let mut codes = vec![0];
        codes.extend(of_command.map(|(_, code)| *code));
        codes.push(exit::FAILED);
        let help = command.get_after_long_help().unwrap().to_string();
        assert_eq!(exit_codes_of_help(&help), codes, "{name}");
    }
}

#[test]
fn the_page_describes_every_variable() {
    let own = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        let own = words.filter(|word| word.starts_with("LEASEHOLD_") || word.starts_with("XDG_"));
        own.map(str::to_owned).collect()
    };
    let mut variables = own(help::LEASEHOLD);
    for (command, _) in described() {
        let options = command.get_arguments().filter_map(Arg::get_env);
        variables.extend(options.map(|variable| variable.to_string_lossy().into_owned()));
    }
    assert_eq!(own(section("## Environment")), variables);
    let of_the_command =
        |help: &'static str| help.split_once("ENVIRONMENT OF THE COMMAND").unwrap().1;
    let (run, passed_on) = of_the_command(help::RUN)
        .split_once("The password")
        .unwrap();
    let (passed_on, _) = passed_on.split_once('\n').unwrap();
    let (elect, _) = of_the_command(help::ELECT)
        .split_once("The others")
        .unwrap();
    let page = own(section("### Variables of the command"));
    assert_eq!(page, &own(run) | &own(elect));
    assert!(own(passed_on).is_subset(&variables));
    let mut documented = &page | &variables;
    documented.retain(|name| name.starts_with("LEASEHOLD_"));
    let known = variables::KNOWN.iter().map(|name| (*name).to_owned());
    assert_eq!(documented, known.collect::<BTreeSet<_>>());
}

/// The exit code of a pipe hides that a command before the last one has failed.
#[test]
fn no_example_runs_a_pipe() {
    let helps = described().into_iter();
    let helps = helps.map(|(command, _)| command.get_after_long_help().unwrap().to_string());
    for text in helps.chain(PAGES.map(page)) {
        let mut lines = text.lines().filter_map(|line| line.split_once(" -c '"));
        let is_piped =
            |(call, line): &(&str, &str)| call.contains("leasehold ") && line.contains(" | ");
        assert_eq!(lines.find(is_piped), None);
    }
}

#[test]
fn no_line_of_a_help_text_breaks_in_two() {
    for (command, _) in described() {
        let text = command.get_after_long_help().unwrap().to_string();
        let indented = text.lines().filter(|line| line.starts_with(' '));
        for line in indented {
            assert!(line.len() < 80, "{}: {line}", command.get_name());
        }
        for heading in ["EXIT STATUS", "EXAMPLES"] {
            let found = text.lines().any(|line| line == heading);
            assert!(found, "{}: {heading}", command.get_name());
        }
    }
}
