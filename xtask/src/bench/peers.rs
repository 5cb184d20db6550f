//! The libraries that are compared, and how each is built and started.

use std::process::Command;

use crate::tools::{cargo, root, run};

/// One library with one setting.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) library: &'static str,
    pub(super) variant: &'static str,
    language: &'static Language,
}

/// A language: the directory of its runners, and the command lines there.
#[derive(Debug)]
struct Language {
    directory: &'static str,
    build: &'static [&'static str],
    run: &'static str,
}

const RUST: Language = Language {
    directory: "bench/rust",
    build: &["cargo build --release --locked --target-dir target"],
    // And the name of the library.
    run: "target/release/",
};
const PYTHON: Language = Language {
    directory: "bench/peers/python",
    build: &[
        "python3 -m venv venv",
        "venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt",
    ],
    run: "venv/bin/python runner.py",
};
const NODE: Language = Language {
    directory: "bench/peers/node",
    build: &["node --version", "npm ci --silent"],
    run: "node runner.js",
};
const GO: Language = Language {
    directory: "bench/peers/go",
    build: &["go build -o target/runner ."],
    run: "target/runner",
};
const JAVA: Language = Language {
    directory: "bench/peers/java",
    build: &["java --version", "mvn --quiet --batch-mode package"],
    run: "java -jar target/runner.jar",
};

/// All of them: ours first, then each as its documentation recommends and with its fastest setting.
pub(super) fn all() -> Vec<Peer> {
    [
        ("leasehold", &["default", "no-handoff"][..], &RUST),
        ("rslock", &["default", "fastest"], &RUST),
        ("distributed-lock", &["default", "fastest"], &RUST),
        ("redis-py", &["default", "fastest"], &PYTHON),
        ("redlock", &["default", "fastest"], &NODE),
        ("redsync", &["default", "fastest"], &GO),
        ("redisson", &["default", "fair", "spin"], &JAVA),
    ]
    .into_iter()
    .flat_map(|(library, variants, language)| {
        variants.iter().map(move |variant| Peer {
            library,
            variant,
            language,
        })
    })
    .collect()
}

impl Peer {
    pub(super) fn label(&self) -> String {
        match self.variant {
            "default" => self.library.to_owned(),
            variant => format!("{} ({variant})", self.library),
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.library == "leasehold"
    }

    /// Whether its lock can be one over many servers.
    pub(super) fn over_many(&self) -> bool {
        match self.library {
            // Hand-off inside a process does not depend on the masters.
            "leasehold" => self.variant == "default",
            library => ["rslock", "redlock", "redsync"].contains(&library),
        }
    }

    /// Builds its runner, or returns the reason why that cannot be done here. Building twice costs little.
    pub(super) fn build(&self) -> Result<(), String> {
        let mut lines = self.language.build.iter();
        lines.try_for_each(|line| run(&mut self.command_of(line)))
    }

    /// The start of its command line.
    pub(super) fn command(&self) -> Command {
        match self.language.directory == RUST.directory {
            true => self.command_of(&format!("{}{}", RUST.run, self.library)),
            false => self.command_of(self.language.run),
        }
    }

    fn command_of(&self, line: &str) -> Command {
        let directory = root().join(self.language.directory);
        let mut words = line.split(' ');
        let mut command = match words.next().unwrap_or_default() {
            "cargo" => cargo(),
            program if program.contains('/') => Command::new(directory.join(program)),
            program => Command::new(program),
        };
        command.current_dir(directory).args(words);
        command
    }
}
