//! What every runner does, whatever the library: see `../README.md` for the contract.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;

/// More than any chart needs.
const EVENTS_MAX: usize = 200_000;

/// What a runner is asked to do.
pub struct Args {
    pub url: String,
    pub variant: String,
    name: String,
    tasks: usize,
    own_names: bool,
    section: Duration,
    seconds: f64,
}

/// A lock of some library, as one task uses it.
pub trait Lock: 'static {
    type Guard;
    fn lock(&mut self) -> impl Future<Output = Result<Self::Guard, Box<dyn Error>>>;
    fn unlock(&mut self, guard: Self::Guard) -> impl Future<Output = Result<(), Box<dyn Error>>>;
}

#[derive(Default)]
struct Notes {
    acquisitions: u64,
    waits: BTreeMap<u32, u64>,
    wait_max: Duration,
    events: Vec<(u64, u64)>,
    failure: Option<String>,
}

impl Notes {
    fn wait(&mut self, wait: Duration) {
        let bucket = (20.0 * (wait.as_secs_f64() * 1e6 + 1.0).log10()).floor();
        *self.waits.entry(bucket as u32).or_default() += 1;
        self.wait_max = self.wait_max.max(wait);
    }
}

/// Runs a library's tasks. `connect` gives the means to make its locks.
pub fn run<L: Lock, M: AsyncFnMut(&str) -> Result<L, Box<dyn Error>>>(
    library: &str,
    version: &str,
    connect: impl AsyncFnOnce(&Args) -> Result<M, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let args = parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let mut make = connect(&args).await?;
        let mut locks = Vec::new();
        for task in 0..args.tasks {
            let name = if args.own_names {
                format!("{}/{task}", args.name)
            } else {
                args.name.clone()
            };
            locks.push(make(&name).await?);
        }
        println!("ready");
        std::io::stdout().flush()?;
        let mut go = String::new();
        std::io::stdin().lock().read_line(&mut go)?;
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(args.seconds);
        let notes = Rc::new(RefCell::new(Notes::default()));
        let keep_events = args.tasks == 1 && !args.own_names;
        let section = args.section;
        let tasks: Vec<_> = locks
            .into_iter()
            .map(|lock| {
                let notes = Rc::clone(&notes);
                tokio::task::spawn_local(work(lock, notes, section, end, keep_events))
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        let seconds = start.elapsed().as_secs_f64().min(args.seconds);
        let notes = notes.borrow();
        if let Some(failure) = &notes.failure {
            return Err(failure.clone().into());
        }
        let waits: Vec<_> = notes.waits.iter().collect();
        println!(
            "{}",
            json!({
                "library": library,
                "version": version,
                "variant": args.variant,
                "acquisitions": notes.acquisitions,
                "seconds": seconds,
                "wait_us": waits,
                "wait_max_us": notes.wait_max.as_secs_f64() * 1e6,
                "events": notes.events,
            })
        );
        Ok(())
    })
}

async fn work<L: Lock>(
    mut lock: L,
    notes: Rc<RefCell<Notes>>,
    section: Duration,
    end: Instant,
    keep_events: bool,
) {
    let end_of_wait = tokio::time::Instant::from_std(end);
    while Instant::now() < end {
        let asked = Instant::now();
        let locked = tokio::time::timeout_at(end_of_wait, lock.lock()).await;
        let mut guard = None;
        let acquired = monotonic();
        {
            let mut notes = notes.borrow_mut();
            notes.wait(asked.elapsed());
            match locked {
                Ok(Ok(locked)) => {
                    guard = Some(locked);
                    notes.acquisitions += 1;
                }
                Ok(Err(error)) => notes.failure = Some(error.to_string()),
                Err(_) => {}
            }
        }
        let Some(guard) = guard else { return };
        if !section.is_zero() {
            tokio::time::sleep(section).await;
        }
        if keep_events && notes.borrow().events.len() < EVENTS_MAX {
            notes.borrow_mut().events.push((acquired, monotonic()));
        }
        if let Err(error) = lock.unlock(guard).await {
            notes.borrow_mut().failure = Some(error.to_string());
            return;
        }
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds, which all processes of a machine share.
fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to the struct it is given, and this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn parse() -> Result<Args, Box<dyn Error>> {
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
        name: get("--name")?,
        tasks: get("--tasks")?.parse()?,
        own_names: get("--own-names")? == "1",
        section: Duration::from_micros(get("--section-us")?.parse()?),
        seconds: get("--seconds")?.parse()?,
    })
}
