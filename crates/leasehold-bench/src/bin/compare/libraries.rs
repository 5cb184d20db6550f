//! The libraries that are compared, and how each is built and started.

use std::process::Command;
use std::time::Duration;

use super::work::{Deployment, Primitive, Work};
use crate::tools::{cargo, find, root, run};

/// One library with one of its variants.
#[derive(Clone, Debug)]
pub(super) struct LibraryVariant {
    pub(super) library: &'static str,
    pub(super) variant: &'static str,
    pub(super) language: &'static Language,
}

/// A language: the directory of its runners, and the command lines there.
#[derive(Debug)]
pub(super) struct Language {
    pub(super) directory: &'static str,
    /// What a user installs, and the programs that come with it.
    needs: &'static str,
    programs: &'static [&'static str],
    build: &'static [&'static str],
    /// `LIBRARY` stands for the name of the library.
    run: &'static str,
    warm_up: Duration,
}

/// Until connections, scripts and caches are settled.
const SHORT: Duration = Duration::from_secs(1);

/// Until a compiler at run time has compiled what runs often.
const LONG: Duration = Duration::from_secs(10);

const RUST: Language = Language {
    directory: "bench/rust",
    needs: "Rust",
    programs: &[],
    // A target directory of its own: also where CARGO_TARGET_DIR names another one.
    build: &["cargo build --release --locked --target-dir target"],
    run: "target/release/LIBRARY-runner",
    warm_up: SHORT,
};
const PYTHON: Language = Language {
    directory: "bench/peers/python",
    needs: "Python 3.11 with venv",
    programs: &["python3"],
    build: &[
        "python3 -m venv venv",
        "venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt",
    ],
    run: "venv/bin/python runner.py",
    warm_up: SHORT,
};
const NODE: Language = Language {
    directory: "bench/peers/node",
    needs: "Node.js 18 with npm",
    programs: &["node", "npm"],
    build: &["npm ci --silent"],
    run: "node runner.js --library LIBRARY",
    warm_up: LONG,
};
const GO: Language = Language {
    directory: "bench/peers/go",
    needs: "Go 1.26",
    programs: &["go"],
    build: &["go build -o target/runner ."],
    run: "target/runner --library LIBRARY",
    warm_up: SHORT,
};
const JAVA: Language = Language {
    directory: "bench/peers/java",
    needs: "JDK 17 and Maven",
    programs: &["java", "mvn"],
    build: &["mvn --quiet --batch-mode package"],
    run: "java -jar target/runner.jar --library LIBRARY",
    warm_up: LONG,
};

pub(super) const LEASEHOLD: &str = "leasehold";

/// Leasehold first. `default` follows the documentation of the library.
const LIBRARIES: [(&str, &[&str], &Language); 10] = [
    (LEASEHOLD, &["default", "no-handoff", "buckets"], &RUST),
    ("rslock", &["default", "fastest"], &RUST),
    ("distributed-lock", &["default", "fastest"], &RUST),
    ("redis-py", &["default", "fastest"], &PYTHON),
    ("redlock", &["default", "fastest"], &NODE),
    ("redsync", &["default", "fastest"], &GO),
    ("redisson", &["default", "fair", "spin", "expirable"], &JAVA),
    ("redis-semaphore", &["default", "fastest"], &NODE),
    ("etcd", &["default"], &GO),
    ("curator", &["default"], &JAVA),
];

/// The names of the libraries.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LIBRARIES.iter().map(|library| library.0)
}

pub(super) fn all() -> impl Iterator<Item = LibraryVariant> {
    LIBRARIES.iter().flat_map(|(library, variants, language)| {
        variants.iter().map(move |variant| LibraryVariant {
            library,
            variant,
            language,
        })
    })
}

impl LibraryVariant {
    pub(super) fn label(&self) -> String {
        match self.variant {
            "default" => self.library.to_owned(),
            variant => format!("{} ({variant})", self.library),
        }
    }

    /// Whether it can do the work, and differently from the other variants of its library.
    pub(super) fn suits(&self, work: &Work) -> bool {
        let waits_differently = ["no-handoff", "fastest"].contains(&self.variant);
        let deployed = match work.deployment {
            Deployment::Single | Deployment::Pinned => !["etcd", "curator"].contains(&self.library),
            Deployment::Masters | Deployment::DistantMasters | Deployment::DeadMaster => {
                [LEASEHOLD, "rslock", "redlock", "redsync"].contains(&self.library)
            }
            Deployment::Cluster => self.library == LEASEHOLD,
            Deployment::Etcd => [LEASEHOLD, "etcd"].contains(&self.library),
            Deployment::Zookeeper => [LEASEHOLD, "curator"].contains(&self.library),
        };
        let has_primitive = match (work.primitive, self.library) {
            (_, LEASEHOLD) => true,
            (Primitive::Mutex, library) => {
                library != "redis-semaphore" && self.variant != "expirable"
            }
            (Primitive::Semaphore, "redisson") => ["default", "expirable"].contains(&self.variant),
            (Primitive::Semaphore, library) => library == "redis-semaphore",
            (Primitive::RwLock, library) => library == "redisson" && self.variant == "default",
        };
        let slots = self.variant != "buckets" || work.deployment == Deployment::Cluster;
        deployed && has_primitive && slots && !(work.own_names && waits_differently)
    }

    /// How long it works before the window.
    pub(super) fn warm_up(&self, work: &Work) -> Duration {
        match work.deployment {
            // The server is compiled at run time.
            Deployment::Zookeeper => LONG,
            _ => self.language.warm_up,
        }
    }

    /// Builds its runner, or returns the reason why that cannot be done here.
    pub(super) fn build(&self) -> Result<(), String> {
        let language = self.language;
        if let Some(missing) = language.programs.iter().find(|name| find(name).is_none()) {
            let needs = language.needs;
            return Err(format!("{missing} is missing; install {needs} or newer"));
        }
        let mut lines = language.build.iter();
        lines.try_for_each(|line| run(&mut self.command_of(line)))
    }

    /// The start of its command line.
    pub(super) fn command(&self) -> Command {
        self.command_of(&self.language.run.replace("LIBRARY", self.library))
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
