//! The command lines in the pages for users, compared with the help of their commands.

use std::collections::{BTreeMap, BTreeSet};

use crate::tools::{Fixture, RunToEnd, stdout};

const PAGES: [(&str, &str); 7] = [
    ("README.md", include_str!("../../../../README.md")),
    (
        "comparison.md",
        include_str!("../../../../docs/comparison.md"),
    ),
    ("jobs.md", include_str!("../../../../docs/jobs.md")),
    (
        "migrating.md",
        include_str!("../../../../docs/migrating.md"),
    ),
    (
        "operations.md",
        include_str!("../../../../docs/operations.md"),
    ),
    ("recipes.md", include_str!("../../../../docs/recipes.md")),
    ("watchdog.md", include_str!("../../../../docs/watchdog.md")),
];

/// The options of the subcommands, by the words before them.
fn options() -> BTreeMap<Vec<&'static str>, BTreeSet<String>> {
    let fixture = Fixture::new();
    let commands: [&[&str]; 14] = [
        &["run"],
        &["once"],
        &["elect"],
        &["hold"],
        &["jobs"],
        &["ls"],
        &["show"],
        &["release"],
        &["doctor"],
        &["watchdog"],
        &["watchdog", "status"],
        &["completions"],
        &["man"],
        &[],
    ];
    let options = commands.map(|words| {
        let help = fixture.leasehold(words.iter().chain(&["--help"]));
        let help = stdout(&{ help }.run_to_end());
        let own = help.split([' ', ',', '[', '=', '\n']).map(str::to_owned);
        (words.to_vec(), own.filter(|word| is_option(word)).collect())
    });
    options.into()
}

fn is_option(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    name.len() < word.len() && name.starts_with(|c: char| c.is_ascii_alphabetic())
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
    let options = options();
    let mut seen = 0;
    for (page, text) in PAGES {
        for words in calls(text) {
            let known = [2, 1].into_iter().find_map(|count| {
                let words = words.get(..count)?;
                options.get(words)
            });
            let known = known.unwrap_or_else(|| panic!("{page}: leasehold {}", words.join(" ")));
            for word in words.iter().filter(|word| is_option(word)) {
                let name = word.split(['[', '=']).next().unwrap();
                assert!(known.contains(name), "{page}: {name} in {words:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} options");
}
