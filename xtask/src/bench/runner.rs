//! One run of one peer in one scenario.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use super::figures::{self, Figures, ProcessResult};
use super::peers::Peer;
use super::server::{Calls, Server, Servers};
use crate::tools::OwnedChild;

/// The work of a run.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) processes: usize,
    tasks: usize,
    own_names: bool,
    section_us: u32,
    /// Whether the lock is one over many servers, of which a majority decides.
    pub(super) many: bool,
}

/// A lock of its own for each task.
const OWN: Scenario = Scenario {
    name: "uncontended",
    what: "one task, one lock",
    processes: 1,
    tasks: 1,
    own_names: true,
    section_us: 0,
    many: false,
};

/// One lock for all tasks.
const SHARED: Scenario = Scenario {
    name: "contended",
    what: "64 tasks in one process, one lock, empty critical section",
    tasks: 64,
    own_names: false,
    ..OWN
};

pub(super) const SCENARIOS: [Scenario; 8] = [
    OWN,
    Scenario {
        name: "independent",
        what: "64 tasks, a lock each",
        tasks: 64,
        ..OWN
    },
    SHARED,
    Scenario {
        name: "processes",
        what: "4 processes of 16 tasks, one lock, empty critical section",
        processes: 4,
        tasks: 16,
        ..SHARED
    },
    Scenario {
        name: "working",
        what: "4 processes of 16 tasks, one lock, critical section of 1 ms",
        processes: 4,
        tasks: 16,
        section_us: 1_000,
        ..SHARED
    },
    Scenario {
        name: "ping-pong",
        what: "2 processes of one task, one lock: from release to acquisition in the other",
        processes: 2,
        tasks: 1,
        ..SHARED
    },
    Scenario {
        name: "masters",
        what: "one task, one lock over 5 masters",
        many: true,
        ..OWN
    },
    Scenario {
        name: "masters, independent",
        what: "64 tasks, a lock each, over 5 masters",
        tasks: 64,
        many: true,
        ..OWN
    },
];

/// Runs a scenario. Returns its figures and the version of the library.
pub(super) fn run(
    peer: &Peer,
    scenario: &Scenario,
    servers: &Servers,
    seconds: f64,
) -> Result<(Figures, String), String> {
    let servers = servers.of(scenario.many);
    for server in servers {
        server.flush()?;
    }
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let urls = urls.join(",");
    let mut runners = Vec::new();
    for process in 0..scenario.processes {
        runners.push(Runner::start(peer, scenario, &urls, seconds, process)?);
    }
    for runner in &mut runners {
        runner.wait_ready()?;
    }
    let before = Calls::of(servers)?;
    for runner in &mut runners {
        runner.go()?;
    }
    let results: Result<Vec<_>, _> = runners.into_iter().map(Runner::finish).collect();
    let (results, after) = (results?, Calls::of(servers)?);
    let calls = (after.locks - before.locks, after.all - before.all);
    let version = results.first().map(|result| result.version.clone());
    Ok((
        figures::from_processes(&results, calls),
        version.unwrap_or_default(),
    ))
}

/// One process of a peer. It ends with this.
struct Runner {
    child: OwnedChild,
    lines: BufReader<std::process::ChildStdout>,
}

impl Runner {
    fn start(
        peer: &Peer,
        scenario: &Scenario,
        urls: &str,
        seconds: f64,
        process: usize,
    ) -> Result<Self, String> {
        let (variant, tasks, section) = (peer.variant, scenario.tasks, scenario.section_us);
        let own = u8::from(scenario.own_names);
        let line = format!(
            "--url {urls} --variant {variant} --name bench --tasks {tasks} --own-names {own} --section-us {section} \
             --seconds {seconds} --process {process}"
        );
        let mut command = peer.command();
        command.args(line.split(' '));
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| format!("cannot be started: {error}"))?;
        let stdout = child.stdout.take().ok_or("it has no output")?;
        Ok(Self {
            child: OwnedChild(child),
            lines: BufReader::new(stdout),
        })
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let line = self.line()?;
        if line.trim() == "ready" {
            return Ok(());
        }
        Err(self.last_error().unwrap_or(line))
    }

    fn go(&mut self) -> Result<(), String> {
        let stdin = self.child.0.stdin.as_mut().ok_or("it has no input")?;
        stdin.write_all(b"go\n").map_err(|error| error.to_string())
    }

    fn finish(mut self) -> Result<ProcessResult, String> {
        let line = self.line()?;
        match serde_json::from_str::<ProcessResult>(&line) {
            Ok(result) if result.seconds > 0.0 => Ok(result),
            _ => Err(self.last_error().unwrap_or(line)),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        read.map(|_| line).map_err(|error| error.to_string())
    }

    /// The last line of its error output.
    fn last_error(&mut self) -> Option<String> {
        let _ = self.child.0.kill();
        let mut text = String::new();
        self.child
            .0
            .stderr
            .as_mut()?
            .read_to_string(&mut text)
            .ok()?;
        let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(last.trim().to_owned())
    }
}
