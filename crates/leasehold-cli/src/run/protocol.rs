//! The messages between a runner and its guardian.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Instant, LeaseId};
use rustix::process::Pid;

/// The hidden subcommand that starts a guardian.
pub(super) const COMMAND: &str = "__guard";

/// Its first argument, as `pidof` and `ps` show it.
pub(super) const FIRST_ARGUMENT: &str = "leasehold-guardian";

/// The line that dismisses the guardian.
pub(super) const DISMISSED: &str = ".\n";

/// The order to a guardian.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) lease: LeaseId,
    /// The socket of the watchdog on this machine. Empty without one.
    pub(super) socket: PathBuf,
    /// The process group of the command. 0: one of its own.
    pub(super) group: i32,
    pub(super) command: Vec<OsString>,
}

impl Order {
    /// Texts that end with a NUL, as in /proc: no argument of a process contains one.
    ///
    /// The command is not in the guardian's arguments, where `pkill -f` would match it instead of the command.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let group = self.group.to_string();
        let lease = self.lease.to_string();
        let count = self.command.len().to_string();
        let socket = self.socket.as_os_str();
        let texts = [
            lease.as_bytes(),
            socket.as_bytes(),
            group.as_bytes(),
            count.as_bytes(),
        ];
        for text in texts
            .into_iter()
            .chain(self.command.iter().map(|text| text.as_bytes()))
        {
            bytes.extend_from_slice(text);
            bytes.push(0);
        }
        bytes
    }

    pub(super) fn read(from: &mut impl BufRead) -> Option<Self> {
        let mut text = || {
            let mut bytes = Vec::new();
            from.read_until(0, &mut bytes).ok()?;
            // Without the NUL it was cut off.
            (bytes.pop()? == 0).then(|| OsString::from_vec(bytes))
        };
        let lease = text()?.to_str()?.parse().ok()?;
        let socket = text()?.into();
        let group = text()?.to_str()?.parse().ok()?;
        let count: usize = text()?.to_str()?.parse().ok()?;
        let command = (0..count).map(|_| text()).collect::<Option<_>>()?;
        Some(Self {
            lease,
            socket,
            group,
            command,
        })
    }
}

/// The line that allows the command to live until an instant.
pub(super) fn allowance(until: Instant, reserve: Duration) -> String {
    format!("{} {}\n", until.as_nanos(), reserve.as_nanos())
}

/// The instant and the duration of such a line.
pub(super) fn parse_allowance(line: &str) -> Option<(Instant, Duration)> {
    let (until, reserve) = line.split_once(' ')?;
    let until = Instant::from_nanos(until.parse().ok()?);
    Some((until, Duration::from_nanos(reserve.parse().ok()?)))
}

/// Whether a line dismisses the guardian.
pub(super) fn is_dismissal(line: &str) -> bool {
    line == DISMISSED.trim_end()
}

/// A line from the guardian to the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The command runs.
    Running(Pid),
    /// It could not be started, by the number of the error.
    Failed(i32),
    /// No process of the command is left. Comes before `Ended` if the command was the last.
    Empty,
    /// The command itself has ended.
    Ended(ExitStatus),
}

impl Report {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (kind, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number: i32 = number.parse().ok()?;
        match kind {
            "running" => Pid::from_raw(number).map(Self::Running),
            "failed" => Some(Self::Failed(number)),
            "empty" => Some(Self::Empty),
            "ended" => Some(Self::Ended(ExitStatus::from_raw(number))),
            _ => None,
        }
    }

    pub(super) fn send(self, mut channel: &UnixStream) {
        let line = match self {
            Self::Running(pid) => format!("running {pid}\n"),
            Self::Failed(errno) => format!("failed {errno}\n"),
            Self::Empty => "empty\n".to_owned(),
            Self::Ended(status) => format!("ended {}\n", status.into_raw()),
        };
        // The death of the runner is noticed by the end of the channel.
        let _ = channel.write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use rustix::process::getpid;

    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = Order {
            lease: "0123456789abcdef0123456789abcdef:7".parse().unwrap(),
            socket: PathBuf::from("/a\nb"),
            group: 12,
            command: vec![
                "".into(),
                OsString::from_vec(vec![0xff, b'\n']),
                "c d".into(),
            ],
        };
        let bytes = order.encode();
        let read = Order::read(&mut bytes.as_slice()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{order:?}"));
        for length in 0..bytes.len() {
            assert!(Order::read(&mut &bytes[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for report in [
            Report::Running(getpid()),
            Report::Failed(2),
            Report::Empty,
            Report::Ended(ExitStatus::from_raw(0x0900)),
        ] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            report.send(&ours);
            let mut line = String::new();
            BufReader::new(theirs).read_line(&mut line).unwrap();
            assert_eq!(Report::parse(line.trim_end()), Some(report));
        }
        assert_eq!(Report::parse("nonsense 1"), None);
    }
}
