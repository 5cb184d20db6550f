//! Sleeping for less than a millisecond, and for a millisecond no longer than that.

use std::io;
use std::time::Duration;

/// A timer of the system's own: the runtime's go off at whole milliseconds, one too late.
///
/// To be driven by one task at a time.
#[derive(Debug)]
pub(super) struct Pause {
    /// The timer is no pipe, but it is read like one.
    #[cfg(target_os = "linux")]
    timer: tokio::net::unix::pipe::Receiver,
}

#[cfg(target_os = "linux")]
impl Pause {
    /// Inside a runtime only.
    pub(super) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let timer = tokio::net::unix::pipe::Receiver::from_file_unchecked(timer.into())?;
        Ok(Self { timer })
    }

    /// Sleeps for `span`. Zero is no time at all.
    pub(super) async fn sleep(&self, span: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        if span.is_zero() {
            return Ok(());
        }
        let time = |span: Duration| {
            Timespec::try_from(span).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
        };
        let once = Itimerspec {
            it_interval: time(Duration::ZERO)?,
            it_value: time(span)?,
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

#[cfg(not(target_os = "linux"))]
impl Pause {
    /// Inside a runtime only.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Sleeps for `span`, as well as the runtime can. Zero is no time at all.
    pub(super) async fn sleep(&self, span: Duration) -> io::Result<()> {
        if !span.is_zero() {
            tokio::time::sleep(span).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// How much longer depends on the machine; never shorter does not.
    #[tokio::test]
    async fn a_pause_is_never_too_short() {
        let pause = Pause::new().unwrap();
        for micros in [0, 1, 200, 1_000, 3_000] {
            let span = Duration::from_micros(micros);
            let start = Instant::now();
            pause.sleep(span).await.unwrap();
            assert!(start.elapsed() >= span, "{span:?}");
        }
    }
}
