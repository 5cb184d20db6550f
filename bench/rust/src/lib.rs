//! The contract of a runner, see `../README.md`, for every Rust library.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::task::{LocalSet, spawn_local, yield_now};

/// More than any quantile needs.
const HELD_MAX: usize = 200_000;

/// The number of buckets that a power of ten has in a histogram.
const BUCKETS: f64 = 200.0;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The options of a runner.
#[derive(Debug)]
pub struct Args {
    pub url: String,
    pub variant: String,
    /// `mutex`, `semaphore` or `rw-lock`.
    pub primitive: String,
    name: String,
    tasks: usize,
    own_names: bool,
    section: Duration,
}

/// A lock of some library, as one task uses it.
pub trait Lock: 'static {
    type Guard;
    fn lock(&self) -> impl Future<Output = Result<Self::Guard>>;
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = Result<()>>;
}

/// The result of one window.
#[derive(Debug, Default, Serialize)]
struct Window {
    version: &'static str,
    acquisitions: u64,
    wait_us: BTreeMap<u32, u64>,
    wait_max_us: f64,
    pair_us: BTreeMap<u32, u64>,
    section_us: BTreeMap<u32, u64>,
    held: Vec<(u64, u64)>,
}

/// Runs a library's tasks. `connect` gives the means to make its locks.
pub fn run<L: Lock, M: AsyncFnMut(&str) -> Result<L>>(
    version: &'static str,
    connect: impl AsyncFnOnce(&Args) -> Result<M>,
) -> Result<()> {
    let args = Rc::new(parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut create = connect(&args).await?;
        let mut locks = Vec::new();
        for task in 0..args.tasks {
            let own = format!("{}/{task}", args.name);
            let name = if args.own_names { &own } else { &args.name };
            locks.push(Rc::new(create(name).await?));
        }
        println!("ready");
        let mut lines = BufReader::new(stdin()).lines();
        while let Some(seconds) = lines.next_line().await? {
            let window = Window {
                version,
                ..Window::default()
            };
            let window = Rc::new(RefCell::new(window));
            let end = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
            let work =
                |lock: &Rc<L>| work(Rc::clone(lock), Rc::clone(&args), Rc::clone(&window), end);
            let tasks: Vec<_> = locks.iter().map(|lock| spawn_local(work(lock))).collect();
            for task in tasks {
                task.await??;
            }
            println!("{}", serde_json::to_string(&*window.borrow())?);
        }
        Ok(())
    })
}

/// Works until the end. An open acquisition is finished after it, so that the next window starts with free locks.
async fn work<L: Lock>(
    lock: Rc<L>,
    args: Rc<Args>,
    window: Rc<RefCell<Window>>,
    end: Instant,
) -> Result<()> {
    let keep_held = args.tasks == 1 && !args.own_names;
    loop {
        let asked = Instant::now();
        if asked >= end {
            return Ok(());
        }
        let guard = lock.lock().await?;
        let acquired = Instant::now();
        window.borrow_mut().wait(acquired.min(end) - asked);
        if acquired >= end {
            return lock.unlock(guard).await;
        }
        let from = if keep_held { monotonic() } else { 0 };
        if !args.section.is_zero() {
            // By the clock: timers are late by up to a millisecond, each runtime's by another time.
            while acquired.elapsed() < args.section {
                yield_now().await;
            }
            window.borrow_mut().section(acquired.elapsed());
        }
        if keep_held {
            window.borrow_mut().held(from, monotonic());
        }
        lock.unlock(guard).await?;
        window.borrow_mut().pair(asked.elapsed());
    }
}

impl Window {
    fn wait(&mut self, wait: Duration) {
        let micros = wait.as_secs_f64() * 1e6;
        *self.wait_us.entry(bucket(micros)).or_default() += 1;
        self.wait_max_us = self.wait_max_us.max(micros);
    }

    fn section(&mut self, section: Duration) {
        let bucket = bucket(section.as_secs_f64() * 1e6);
        *self.section_us.entry(bucket).or_default() += 1;
    }

    fn held(&mut self, from: u64, to: u64) {
        if self.held.len() < HELD_MAX {
            self.held.push((from, to));
        }
    }

    fn pair(&mut self, pair: Duration) {
        self.acquisitions += 1;
        let bucket = bucket(pair.as_secs_f64() * 1e6);
        *self.pair_us.entry(bucket).or_default() += 1;
    }
}

fn bucket(micros: f64) -> u32 {
    (BUCKETS * (micros + 1.0).log10()).floor() as u32
}

/// `CLOCK_MONOTONIC` in nanoseconds, which all processes of a machine share.
fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn parse() -> Result<Args> {
    let mut options = BTreeMap::new();
    let mut args = std::env::args().skip(1);
    while let (Some(option), Some(value)) = (args.next(), args.next()) {
        options.insert(option, value);
    }
    let get = |option: &str| {
        let value = options.get(option).cloned();
        value.ok_or_else(|| format!("{option} is missing"))
    };
    Ok(Args {
        url: get("--url")?,
        variant: get("--variant")?,
        primitive: get("--primitive")?,
        name: get("--name")?,
        tasks: get("--tasks")?.parse()?,
        own_names: get("--own-names")? == "1",
        section: Duration::from_micros(get("--section-us")?.parse()?),
    })
}
