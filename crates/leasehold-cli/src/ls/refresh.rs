//! `leasehold ls --watch`.

use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use jiff::Zoned;
use leasehold::{Client, LockInfo};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use tokio::time::{self, Interval, MissedTickBehavior};

use super::{list, listing, table};
use crate::args::LsArgs;
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::{duration, json, output};

/// The lines of a frame above the locks: a summary, an empty line and the header of the table.
const HEAD_LINES: usize = 3;

/// The height of a terminal that does not know it.
const LINES: usize = 24;

/// Lists the locks at each tick of the interval. Failures that may pass do not end it.
pub(super) async fn refresh(
    args: &LsArgs,
    client: &Client,
    interval: Duration,
) -> Result<u8, Failure> {
    let mut ticks = time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if args.json || !io::stdout().is_terminal() {
        print_each(args, client, ticks).await
    } else {
        draw_each(args, client, ticks).await
    }
}

/// Prints each listing with its time, until nobody reads them.
async fn print_each(args: &LsArgs, client: &Client, mut ticks: Interval) -> Result<u8, Failure> {
    loop {
        ticks.tick().await;
        let locks = match list(args, client).await {
            Ok(locks) => locks,
            Err(failure) if failure.is_transient() => {
                match args.json {
                    true => json::report(&failure, None),
                    false => failure.report(),
                }
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let text = match args.json {
            true => json::to_line(&listing(client, &locks))?,
            // With an empty line between two tables.
            false => {
                let time = output::rfc3339(SystemTime::now()).unwrap_or_default();
                let table = table(&locks).trim_fmt();
                format!("{time}  {}\n{table}\n", counts(&locks))
            }
        };
        if !output::write_to_reader(format!("{text}\n").as_bytes())? {
            return Ok(0);
        }
    }
}

/// The number of locks and of waiters.
fn counts(locks: &[LockInfo]) -> String {
    let waiters = locks.iter().map(|info| info.waiters.len()).sum();
    let locks = output::count(locks.len(), "lock");
    format!("{locks}, {}", output::count(waiters, "waiter"))
}

/// Draws each listing in place of the one before, until a signal.
async fn draw_each(args: &LsArgs, client: &Client, mut ticks: Interval) -> Result<u8, Failure> {
    // After them the terminal must be as before.
    let signals = vec![SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP];
    let mut signals = Signals::receive(signals)?;
    let mut screen = Screen::open()?;
    loop {
        let next = async {
            ticks.tick().await;
            list(args, client).await
        };
        let listed = tokio::select! {
            listed = next => listed,
            signal = signals.any() => {
                if signal.number != SIGTSTP {
                    return Ok(exit::by_signal(signal.number));
                }
                drop(screen);
                // Stops this process here, until it is continued.
                let _ = kill_process(getpid(), Signal::STOP);
                screen = Screen::open()?;
                continue;
            }
        };
        let frame = match listed {
            Ok(locks) => frame(client, &locks, ticks.period()),
            Err(failure) if failure.is_transient() => frame_of_failure(&failure),
            Err(failure) => return Err(failure),
        };
        screen.draw(&frame)?;
    }
}

/// The lines of a listing, as many as the terminal has.
fn frame(client: &Client, locks: &[LockInfo], interval: Duration) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{}  every {}  {}  {}",
            Zoned::now().strftime("%H:%M:%S"),
            duration::format(interval),
            counts(locks),
            output::printable(&client.store().to_string()),
        ),
        String::new(),
    ];
    let height = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    let height = if height == 0 { LINES } else { height };
    let space = height.saturating_sub(HEAD_LINES);
    if locks.len() <= space {
        lines.extend(table(locks).lines());
    } else {
        // The last line counts the others.
        let shown = space.saturating_sub(1);
        lines.extend(table(&locks[..shown]).lines());
        lines.push(format!("and {} more", locks.len() - shown));
    }
    lines
}

fn frame_of_failure(failure: &Failure) -> Vec<String> {
    let time = Zoned::now().strftime("%H:%M:%S").to_string();
    let message = output::printable(&failure.to_string());
    vec![time, String::new(), format!("{}{message}", Screen::WRAP)]
}

/// The alternate screen of the terminal, without cursor, until it is dropped.
struct Screen;

impl Screen {
    const OPEN: &str = "\x1b[?1049h\x1b[?25l";
    const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
    const HOME: &str = "\x1b[H";
    const NO_WRAP: &str = "\x1b[?7l";
    const WRAP: &str = "\x1b[?7h";
    const CLEAR_LINE: &str = "\x1b[K";
    const CLEAR_BELOW: &str = "\x1b[J";

    fn open() -> Result<Self, Failure> {
        output::print_bytes(Self::OPEN.as_bytes())?;
        Ok(Self)
    }

    /// Writes the lines over those of the frame before. A line that is longer than the terminal is wide is cut off.
    fn draw(&self, lines: &[String]) -> Result<(), Failure> {
        let lines: Vec<_> = lines
            .iter()
            .map(|line| format!("{line}{}", Self::CLEAR_LINE))
            .collect();
        let (home, lines, below) = (Self::HOME, lines.join("\r\n"), Self::CLEAR_BELOW);
        output::print_bytes(format!("{home}{}{lines}{below}", Self::NO_WRAP).as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = output::print_bytes(Self::CLOSE.as_bytes());
    }
}
