//! One measurement of one library variant at one kind of work.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::figures::{self, Figures, ProcessResult, SECTION};
use super::libraries::LibraryVariant;
use super::machine;
use super::servers::Servers;
use super::work::{Deployment, Primitive, Work};
use crate::tools::OwnedChild;

/// How long a runner may take to start, which includes the admission of new masters, and to finish what is open at the
/// end of a window.
const TIMEOUT: Duration = Duration::from_secs(90);

/// How many times as long as requested a section may last: a runner that keeps the lock longer does less with it.
const SECTION_MAX: f64 = 1.1;

/// The same for readers together, of which some are threads that wake one after the other.
const SHARED_SECTION_MAX: f64 = 1.5;

/// Measures a library variant with servers of its own. Returns its figures and the version of the library.
pub(super) fn measure(
    variant: &LibraryVariant,
    work: &Work,
    seconds: Duration,
) -> Result<(Figures, String), String> {
    let mut servers = Servers::start(work.deployment)?;
    let url = servers.url();
    let runners = (0..work.processes).map(|_| Runner::start(variant, work, &url));
    let mut runners: Vec<_> = runners.collect::<Result<_, _>>()?;
    for runner in &mut runners {
        runner.wait_ready()?;
    }
    let warm_up = variant.warm_up(work);
    for runner in &mut runners {
        runner.work_for(warm_up)?;
    }
    for runner in &mut runners {
        runner.result(warm_up)?;
    }
    servers.end_one();
    let before = servers.stats();
    for runner in &mut runners {
        runner.work_for(seconds)?;
    }
    thread::sleep(seconds);
    let stats = servers.stats().zip(before);
    let stats = stats.map(|(after, before)| after.since(&before));
    let results = runners.iter_mut().map(|runner| runner.result(seconds));
    let results: Vec<_> = results.collect::<Result<_, _>>()?;
    let version = results.first().map(|result| result.version.clone());
    let figures = figures::from_processes(work, &results, stats, seconds);
    let (section, requested) = (figures.get(SECTION), f64::from(work.section_us));
    let max = match work.primitive {
        Primitive::RwLock => SHARED_SECTION_MAX,
        Primitive::Mutex | Primitive::Semaphore => SECTION_MAX,
    };
    if let Some(section) = section.filter(|section| **section > max * requested) {
        return Err(format!(
            "its sections last {section} µs instead of {requested}"
        ));
    }
    Ok((figures, version.unwrap_or_default()))
}

/// One process of a library variant. It ends with this.
#[derive(Debug)]
pub(super) struct Runner {
    child: OwnedChild,
    stderr: File,
    lines: Receiver<String>,
}

impl Runner {
    fn start(variant: &LibraryVariant, work: &Work, url: &str) -> Result<Self, String> {
        let (name, tasks, section) = (variant.variant, work.tasks, work.section_us);
        let (own, primitive) = (u8::from(work.own_names), work.primitive.name());
        let line = format!(
            "--url {url} --variant {name} --name bench --tasks {tasks} --own-names {own} --section-us {section} \
             --primitive {primitive}"
        );
        let mut command = variant.command();
        command.args(line.split(' '));
        if work.deployment == Deployment::Pinned {
            command = machine::pinned(&command, machine::CLIENT_CORE);
        }
        Self::spawn(&mut command)
    }

    pub(super) fn spawn(command: &mut Command) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot be started: {error}");
        // A pipe that is read after a failure only would stop a runner that writes much.
        let stderr = tempfile::tempfile().map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(stderr.try_clone().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or("it has no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).all(|sent| sent.is_ok())
        });
        Ok(Self {
            child: OwnedChild(child),
            stderr,
            lines,
        })
    }

    pub(super) fn wait_ready(&mut self) -> Result<(), String> {
        match self.line(TIMEOUT)?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("it printed {other}")),
        }
    }

    fn work_for(&mut self, duration: Duration) -> Result<(), String> {
        let stdin = self.child.0.stdin.as_mut().ok_or("it has no input")?;
        writeln!(stdin, "{}", duration.as_secs_f64()).map_err(|error| error.to_string())
    }

    pub(super) fn result(&mut self, duration: Duration) -> Result<ProcessResult, String> {
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
        let mut bytes = Vec::new();
        self.stderr.rewind().ok()?;
        self.stderr.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(last.trim().to_owned())
    }
}
