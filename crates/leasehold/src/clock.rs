//! The local clock: the only place that reads one.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(not(unix))]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::Instant;
use tokio::sync::Notify;

/// How long [`BootClock`] sleeps at most before it reads the clock again.
///
/// The runtime's timers stand still while the machine is suspended, the lease does not. One check a second
/// costs nothing and bounds how late a loss is reported after the machine wakes up. The state of a lease is
/// always computed from the clock, and is right immediately.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A clock that keeps counting while the machine is suspended. A client uses `CLOCK_BOOTTIME` on Linux, `CLOCK_MONOTONIC` on
/// macOS, and `QueryPerformanceCounter` on Windows. [`ManualClock`] is one for tests.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// This instant.
    fn now(&self) -> Instant;

    /// Waits until an instant. Returns immediately if it has passed.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    fn sleep_until(&self, instant: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The clock of this machine, which clients use by default.
///
/// | system | clock | during a suspend |
/// |---|---|---|
/// | Linux | `CLOCK_BOOTTIME` | counts |
/// | macOS | `CLOCK_MONOTONIC`, unlike the one of `std`, which stands still | counts |
/// | other Unix systems | `CLOCK_MONOTONIC` | stands still on some |
/// | Windows | the one of `std`: `QueryPerformanceCounter` | counts |
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    #[cfg(unix)]
    fn read() -> Instant {
        use rustix::time::{ClockId, clock_gettime};

        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    #[cfg(not(unix))]
    fn read() -> Instant {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        let elapsed = START.get_or_init(std::time::Instant::now).elapsed();
        Instant::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Clock for BootClock {
    fn now(&self) -> Instant {
        Self::read()
    }

    fn sleep_until(&self, instant: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let left = Self::read().until(instant);
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(SLEEP_MAX)).await;
            }
        })
    }
}

/// A clock that stands still until it is moved. For tests: [`MemoryStore`](crate::store::MemoryStore) has an example.
///
/// ```
/// use std::time::Duration;
/// use leasehold::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3));
/// ```
///
/// All times of a client with this clock follow it: leases, renewals, retries, and limits such as those of
/// [`lock_timeout`](crate::Mutex::lock_timeout) and [`shutdown`](crate::Client::shutdown). A limit passes only when the test
/// advances the clock: spawn the call, then advance. One time is real: an observer, such as [`Leaders`](crate::Leaders),
/// pauses for a few milliseconds after a burst of changes.
///
/// * The tasks run while the test awaits, and one `.await` may not be enough. On a runtime of one thread each `yield_now` of
///   Tokio lets every task run once.
/// * A waiting [`lock`](crate::Mutex::lock) repeats its request up to 1 % of the lease and 52 ms after its end.
/// * A renewed lease is held over steps of at most a third of its ttl, if its renewal runs after each step.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use leasehold::clock::ManualClock;
/// # use leasehold::store::MemoryStore;
/// # use leasehold::{Client, LeaseOptions};
/// # let clock = ManualClock::new();
/// # let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
/// # let client = || Client::builder().clock(Arc::new(clock.clone())).connect(Arc::clone(&store));
/// # let (a, b) = (client().await?, client().await?);
/// use tokio::task::yield_now;
///
/// let lease = Duration::from_secs(30);
/// let fixed = LeaseOptions::new().fixed(lease);
/// let _dead = a.mutex("report")?.with(fixed)?.lock().await?;
///
/// let mutex = b.mutex("report")?;
/// let waiter = mutex.clone();
/// let waiting = tokio::spawn(async move { waiter.lock().await });
/// while mutex.inspect().await?.is_none_or(|lock| lock.waiters.is_empty()) {
///     yield_now().await; // until the task is in the queue
/// }
/// clock.advance(lease + Duration::from_secs(1));
/// let guard = waiting.await.expect("the task ends")?;
///
/// for _ in 0..360 {
///     clock.advance(Duration::from_secs(10)); // an hour, in thirds of the ttl
///     for _ in 0..50 {
///         yield_now().await; // until the renewal has its reply
///     }
/// }
/// assert!(guard.state().is_held());
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Manual>);

#[derive(Debug, Default)]
struct Manual {
    nanos: AtomicU64,
    moved: Notify,
}

impl ManualClock {
    /// A clock at its start.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the clock and wakes the tasks whose instant has come. They run while the test awaits.
    pub fn advance(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanos.fetch_add(nanos, Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, instant: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                // Subscribed before the clock is read: no move falls between.
                let moved = self.0.moved.notified();
                if self.now() >= instant {
                    return;
                }
                moved.await;
            }
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    /// How much more the boot clock shows in the namespace of the process that this test starts.
    const SUSPENDED: Duration = Duration::from_secs(315_360_000);

    /// Set in that process.
    const VARIABLE: &str = "LEASEHOLD_TEST_SUSPENDED";

    /// As if the machine had been suspended so long.
    #[test]
    fn it_counts_the_time_of_a_suspend() {
        if env::var_os(VARIABLE).is_some() {
            let time = BootClock.now();
            let suspended = Instant::from_nanos(u64::try_from(SUSPENDED.as_nanos()).unwrap());
            assert!(time >= suspended, "{time:?}");
            return;
        }
        let seconds = SUSPENDED.as_secs().to_string();
        let output = Command::new("unshare")
            .args(["-r", "--time", "--boottime", &seconds, "--fork"])
            .arg(env::current_exe().unwrap())
            .args([
                "clock::tests::it_counts_the_time_of_a_suspend",
                "--nocapture",
            ])
            .env(VARIABLE, "")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{output:?}");
    }
}
