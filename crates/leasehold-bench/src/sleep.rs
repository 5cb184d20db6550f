//! Sleeping for less than a millisecond, and for a millisecond no longer than that.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer of the system: those of the runtime fire at whole milliseconds, one too late.
///
/// To be driven by one task at a time.
#[derive(Debug)]
pub(crate) struct SleepTimer {
    /// The timer is not a pipe, but it is read like one.
    timer: Receiver,
}

impl SleepTimer {
    /// Inside a runtime only.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let timer = Receiver::from_file_unchecked(timer.into())?;
        Ok(Self { timer })
    }

    /// Sleeps for a duration; for zero not at all.
    pub(crate) async fn sleep(&self, duration: Duration) -> io::Result<()> {
        if duration.is_zero() {
            return Ok(());
        }
        let time = |duration: Duration| {
            Timespec::try_from(duration).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
        };
        let once = Itimerspec {
            it_interval: time(Duration::ZERO)?,
            it_value: time(duration)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        loop {
            self.timer.readable().await?;
            let mut count = [0; 8];
            match self.timer.try_read(&mut count) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(drop),
            }
        }
    }
}
