//! One run of one peer at one kind of work.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::figures::{self, Figures, ProcessResult};
use super::machine;
use super::peers::Peer;
use super::servers::Servers;
use super::work::{Deployment, Work};
use crate::tools::OwnedChild;

/// How long a runner may take to start, which includes the admission of new masters, and to finish what is open at the
/// end of a window.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Runs a peer with servers of its own. Returns its figures and the version of the library.
pub(super) fn run(
    peer: &Peer,
    work: &Work,
    seconds: Duration,
) -> Result<(Figures, String), String> {
    let mut servers = Servers::start(work.deployment)?;
    let url = servers.url();
    let runners = (0..work.processes).map(|_| Runner::start(peer, work, &url));
    let mut runners: Vec<_> = runners.collect::<Result<_, _>>()?;
    for runner in &mut runners {
        runner.wait_ready()?;
    }
    for runner in &mut runners {
        runner.work_for(peer.warm_up())?;
    }
    for runner in &mut runners {
        runner.result(peer.warm_up())?;
    }
    servers.end_one();
    let before = servers.usage()?;
    for runner in &mut runners {
        runner.work_for(seconds)?;
    }
    thread::sleep(seconds);
    let usage = servers.usage()?.since(before);
    let results = runners.iter_mut().map(|runner| runner.result(seconds));
    let results: Vec<_> = results.collect::<Result<_, _>>()?;
    let version = results.first().map(|result| result.version.clone());
    let figures = figures::from_processes(work, &results, usage, seconds);
    Ok((figures, version.unwrap_or_default()))
}

/// One process of a peer. It ends with this.
struct Runner {
    child: OwnedChild,
    lines: Receiver<String>,
}

impl Runner {
    fn start(peer: &Peer, work: &Work, url: &str) -> Result<Self, String> {
        let (variant, tasks, section) = (peer.variant, work.tasks, work.section_us);
        let own = u8::from(work.own_names);
        let line = format!(
            "--url {url} --variant {variant} --name bench --tasks {tasks} --own-names {own} --section-us {section}"
        );
        let mut command = peer.command();
        command.args(line.split(' '));
        if work.deployment == Deployment::Pinned {
            command = machine::pinned(&command, machine::two_cores()?.1);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| format!("cannot be started: {error}"))?;
        let stdout = child.stdout.take().ok_or("it has no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).all(|sent| sent.is_ok())
        });
        Ok(Self {
            child: OwnedChild(child),
            lines,
        })
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        match self.line(TIMEOUT)?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("it printed {other}")),
        }
    }

    fn work_for(&mut self, duration: Duration) -> Result<(), String> {
        let stdin = self.child.0.stdin.as_mut().ok_or("it has no input")?;
        writeln!(stdin, "{}", duration.as_secs_f64()).map_err(|error| error.to_string())
    }

    fn result(&mut self, duration: Duration) -> Result<ProcessResult, String> {
        let line = self.line(duration + TIMEOUT)?;
        serde_json::from_str(&line).map_err(|error| format!("{error} in {line}"))
    }

    fn line(&mut self, timeout: Duration) -> Result<String, String> {
        let line = self.lines.recv_timeout(timeout);
        line.map_err(|_| {
            let timeout = || format!("no reply within {} s", timeout.as_secs());
            self.last_error().unwrap_or_else(timeout)
        })
    }

    /// The last line of its error output.
    fn last_error(&mut self) -> Option<String> {
        let _ = self.child.0.kill();
        let mut text = String::new();
        let stderr = self.child.0.stderr.as_mut()?;
        stderr.read_to_string(&mut text).ok()?;
        let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(last.trim().to_owned())
    }
}
