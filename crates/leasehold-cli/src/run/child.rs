//! The command and its guardian, as the runner sees them.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::Guard;
use leasehold::watchdog::Watchdog;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, kill_process_group, wait, waitpid,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal as SignalStream, SignalKind};

use super::processes::{self, Sent, Tree};
use super::protocol::{self, Allowance, GuardianReport, Order, ToGuardian};
use super::spawn::spawn_guardian;
use super::start_error;
use crate::args::RunArgs;
use crate::exit::Failure;
use crate::signals::at_terminal;

/// How long a guardian has to end after it was dismissed.
const DISMISSAL: Duration = Duration::from_secs(5);

/// A guardian, and the command that it has started.
pub(crate) struct Child {
    /// The guardian's process. `None` once it has ended.
    pub(super) guardian: Option<Pid>,
    reports: Lines<BufReader<OwnedReadHalf>>,
    channel: OwnedWriteHalf,
    /// Children of the runner have ended: the guardian, or orphans that it left.
    ended_children: SignalStream,
    /// The processes of the command.
    pub(super) tree: Tree,
    /// The command's own process.
    pub(super) command: Option<Pid>,
    /// How it has ended.
    status: Option<ExitStatus>,
    /// Whether no process of the command is left, by the guardian's reports.
    pub(super) empty: bool,
    /// Whether the command leads a process group of its own.
    pub(super) own_group: bool,
    allowed: Option<Allowance>,
}

/// How often a guardian that has reported nothing yet is continued.
const FIRST_REPORT_PULSE: Duration = Duration::from_millis(500);

impl Child {
    /// Starts the guardian of a command.
    pub(crate) fn guardian(
        environment: &[(&'static str, Option<OsString>)],
    ) -> Result<Self, Failure> {
        let start = || {
            processes::check_proc()?;
            let ended_children = tokio::signal::unix::signal(SignalKind::child())?;
            // Should the guardian be killed, the command's processes become children of the runner.
            processes::adopt_orphans()?;
            let (channel, theirs) = UnixStream::pair()?;
            let pid = spawn_guardian(&theirs, environment)?;
            drop(theirs);
            channel.set_nonblocking(true)?;
            let (reports, channel) = tokio::net::UnixStream::from_std(channel)?.into_split();
            Ok(Self {
                guardian: Some(pid),
                reports: BufReader::new(reports).lines(),
                channel,
                ended_children,
                tree: Tree::of(pid),
                command: None,
                status: None,
                empty: false,
                own_group: !at_terminal(),
                allowed: None,
            })
        };
        start().map_err(|error: io::Error| {
            Failure::own("the guardian of the command cannot be started", error)
        })
    }

    /// Has the guardian start the command unless its deadline is over.
    pub(super) async fn start(
        &mut self,
        args: &RunArgs,
        guards: &[Guard],
        allowance: impl Fn() -> Option<Allowance>,
        watchdog: Option<&Watchdog>,
    ) -> Result<(), Failure> {
        let failed = |error| Failure::own("the guardian of the command does not reply", error);
        let socket = watchdog.and_then(Watchdog::socket);
        let order = ToGuardian::Start(Order {
            leases: guards.iter().map(|it| it.lease_id().to_string()).collect(),
            socket: socket.map(|socket| socket.as_os_str().to_owned()),
            // At a terminal the command is in the runner's group, which is the foreground.
            group: match self.own_group {
                true => 0,
                false => getpgrp().as_raw_pid(),
            },
            // With the order: the runner may be stopped before it sends anything more.
            allowance: allowance(),
            command: args.command.clone(),
        });
        let message = protocol::encode(&order).map_err(failed)?;
        let sent = self.channel.write_all(&message).await;
        sent.map_err(failed)?;
        let line = self.first_report(allowance).await.map_err(failed)?;
        match line.as_deref().and_then(protocol::decode) {
            Some(GuardianReport::Running(pid)) => {
                self.command = Pid::from_raw(pid);
                Ok(())
            }
            Some(GuardianReport::Failed(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                Err(start_error::explain(&args.name, &args.command, error))
            }
            _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Waits for the first report of a guardian, which may be stopped before that, or take long to start the command.
    async fn first_report(
        &mut self,
        allowance: impl Fn() -> Option<Allowance>,
    ) -> io::Result<Option<String>> {
        loop {
            tokio::select! {
                report = self.reports.next_line() => return report,
                () = tokio::time::sleep(FIRST_REPORT_PULSE) => self.continue_guardian(),
            }
            self.allow(allowance());
        }
    }

    /// Waits until the command itself has ended. `None` if its guardian has ended before.
    ///
    /// Dropped, it can be called again.
    pub(crate) async fn ended(&mut self) -> Option<ExitStatus> {
        while self.status.is_none() && self.guardian.is_some() {
            self.next().await;
        }
        self.status
    }

    /// Waits until no process of the command is left.
    ///
    /// Dropped, it can be called again.
    pub(crate) async fn all_ended(&mut self) {
        while !self.empty {
            self.next().await;
        }
    }

    /// Sends a signal to the group that the command leads, or, if it shares ours or has ended, to each of
    /// its processes.
    pub(crate) fn forward(&mut self, signal: Signal) -> Sent {
        let leads_group = self.own_group && self.status.is_none();
        match self.command.filter(|_| leads_group) {
            Some(leader) if kill_process_group(leader, signal).is_ok() => Sent::default(),
            _ => self.tree.signal(signal),
        }
    }

    /// Sends the guardian the deadline of the command.
    pub(super) fn allow(&mut self, allowance: Option<Allowance>) {
        if let Some(new) = allowance.filter(|_| self.allowed != allowance) {
            let message = protocol::encode(&ToGuardian::Allow(new));
            // A guardian that has ended is noticed by the end of its reports.
            let sent = message.and_then(|line| self.channel.try_write(&line));
            if sent.is_ok() {
                self.allowed = allowance;
            }
        }
    }

    /// Continues a stopped guardian, which would neither report an end nor kill the command.
    pub(crate) fn continue_guardian(&self) {
        if let Some(guardian) = self.guardian {
            let _ = kill_process(guardian, Signal::CONT);
        }
    }

    /// Ends the guardian. Processes of the command that remain are left running on purpose.
    pub(crate) async fn dismiss_guardian(mut self) {
        let dismissal = protocol::encode(&ToGuardian::Dismiss);
        let _ = dismissal.and_then(|line| self.channel.try_write(&line));
        let ended = async {
            while self.guardian.is_some() {
                self.next().await;
            }
        };
        let in_time = tokio::time::timeout(DISMISSAL, ended).await.is_ok();
        if !in_time {
            // It is stopped, for example.
            self.kill_guardian();
        }
    }

    /// Kills the guardian, and with it the command that it is starting.
    pub(super) fn kill_guardian(&self) {
        if let Some(guardian) = self.guardian {
            let _ = kill_process(guardian, Signal::KILL);
        }
    }

    /// Handles the next report, or the end of a child.
    async fn next(&mut self) {
        tokio::select! {
            report = self.reports.next_line(), if self.guardian.is_some() => match report {
                Ok(Some(line)) => match protocol::decode(&line) {
                    Some(GuardianReport::Ended(status)) => {
                        self.status = Some(ExitStatus::from_raw(status));
                    }
                    Some(GuardianReport::Empty) => self.empty = true,
                    _ => {}
                },
                _ => self.guardian_ended(),
            },
            _ = self.ended_children.recv() => self.reap(),
        }
    }

    /// The command's processes are children of the runner from now on.
    fn guardian_ended(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            // The kernel has closed its end of the channel, and is about to end it.
            let _ = waitpid(Some(guardian), WaitOptions::empty());
        }
        self.tree = Tree::of(getpid());
        self.reap();
    }

    /// Reaps what has ended: what the guardian has left, and what else an init process gets.
    fn reap(&mut self) {
        let last = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                last => break last,
            }
        };
        // Without a child there is no process of the command left.
        self.empty |= last.is_err() && self.guardian.is_none();
    }
}
