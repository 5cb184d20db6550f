//! The libraries that are compared, and how each is built and started.

use std::path::PathBuf;
use std::process::Command;

use crate::tools::{cargo, find, root, run};

/// One library with one setting.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) library: &'static str,
    pub(super) variant: &'static str,
    pub(super) language: Language,
    pub(super) ours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
    Node,
    Go,
    Java,
}

/// All of them: ours first, then each as its documentation recommends and with its fastest setting.
pub(super) fn all() -> Vec<Peer> {
    use Language::{Go, Java, Node, Python, Rust};
    [
        ("leasehold", "default", Rust),
        ("leasehold", "no-handoff", Rust),
        ("rslock", "default", Rust),
        ("rslock", "fastest", Rust),
        ("distributed-lock", "default", Rust),
        ("distributed-lock", "fastest", Rust),
        ("redis-py", "default", Python),
        ("redis-py", "fastest", Python),
        ("redlock", "default", Node),
        ("redlock", "fastest", Node),
        ("redsync", "default", Go),
        ("redsync", "fastest", Go),
        ("redisson", "default", Java),
        ("redisson", "fair", Java),
        ("redisson", "spin", Java),
    ]
    .map(|(library, variant, language)| Peer {
        library,
        variant,
        language,
        ours: library == "leasehold",
    })
    .into()
}

impl Peer {
    pub(super) fn label(&self) -> String {
        match self.variant {
            "default" => self.library.to_owned(),
            variant => format!("{} ({variant})", self.library),
        }
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
        let directory = self.directory();
        let in_directory = |program: &str| -> Result<Command, String> {
            let path = find(program).ok_or(format!("{program} is not installed"))?;
            let mut command = Command::new(path);
            command.current_dir(&directory);
            Ok(command)
        };
        match self.language {
            Language::Rust => run(cargo()
                .args(["build", "--release", "--locked", "--manifest-path"])
                .arg(directory.join("Cargo.toml"))),
            Language::Python => {
                run(in_directory("python3")?.args(["-m", "venv", "venv"]))?;
                let mut pip = Command::new(directory.join("venv/bin/pip"));
                pip.current_dir(&directory).args(["install", "--quiet"]);
                run(pip.args(["--disable-pip-version-check", "-r", "requirements.txt"]))
            }
            Language::Node => {
                in_directory("node")?;
                run(in_directory("npm")?.args(["ci", "--silent"]))
            }
            Language::Go => run(in_directory("go")?.args(["build", "-o", "target/runner", "."])),
            Language::Java => {
                in_directory("java")?;
                run(in_directory("mvn")?.args(["--quiet", "--batch-mode", "package"]))
            }
        }
    }

    /// The start of its command line.
    pub(super) fn command(&self) -> Command {
        let directory = self.directory();
        match self.language {
            Language::Rust => Command::new(directory.join("target/release").join(self.library)),
            Language::Python => {
                let mut python = Command::new(directory.join("venv/bin/python"));
                python.arg(directory.join("runner.py"));
                python
            }
            Language::Node => {
                let mut node = Command::new("node");
                node.arg(directory.join("runner.js"));
                node
            }
            Language::Go => Command::new(directory.join("target/runner")),
            Language::Java => {
                let mut java = Command::new("java");
                java.arg("-jar").arg(directory.join("target/runner.jar"));
                java
            }
        }
    }

    fn directory(&self) -> PathBuf {
        root().join(match self.language {
            Language::Rust => "bench/rust",
            Language::Python => "bench/peers/python",
            Language::Node => "bench/peers/node",
            Language::Go => "bench/peers/go",
            Language::Java => "bench/peers/java",
        })
    }
}
