//! A holder process: tasks that take the same few locks over and over and write down what they
//! believe.

mod cycle;
mod fence;
mod hold;
mod pulse;

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::Client;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio_util::sync::CancellationToken;

use self::cycle::Cycle;
use crate::history::{Event, Journal};

/// How long the last releases may take.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// What the campaign tells a holder process.
#[derive(Debug, clap::Args)]
pub(crate) struct HolderArgs {
    /// The store.
    #[arg(long)]
    url: String,
    /// The history file to write.
    #[arg(long)]
    history: PathBuf,
    /// The process's name in the histories.
    #[arg(long)]
    process: String,
    /// The port of the fenced resource on 127.0.0.1.
    #[arg(long)]
    fence: u16,
    /// What the process draws its choices from.
    #[arg(long)]
    seed: u64,
    /// The locks.
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// The ttl of renewed leases.
    #[arg(long)]
    ttl_ms: u64,
    /// Whether tasks hand leases on to each other.
    #[arg(long)]
    handoff: bool,
    /// Whether tasks soon give up and ask anew.
    #[arg(long)]
    impatient: bool,
    /// How many threads run the tasks.
    #[arg(long)]
    threads: usize,
    /// How many tasks there are.
    #[arg(long)]
    tasks: u64,
}

/// What all tasks of the process share.
struct Shared {
    args: HolderArgs,
    client: Client,
    journal: Journal,
    holds: AtomicU64,
    stop: CancellationToken,
}

impl Shared {
    fn next_hold(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed)
    }

    fn log(&self, event: &Event) {
        self.journal.write(event);
    }
}

/// Runs until its standard input ends, which also happens when the campaign dies.
///
/// # Errors
///
/// What keeps it from starting.
pub(crate) fn run(args: HolderArgs) -> Result<(), String> {
    // A stopped process reads no input, so that alone would not end it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let mut builder = match args.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(live(args))
}

async fn live(args: HolderArgs) -> Result<(), String> {
    let journal = Journal::open(&args.history).map_err(|error| error.to_string())?;
    journal.write(&Event::Started {
        pid: std::process::id(),
        ttl_ms: args.ttl_ms,
        handoff: args.handoff,
    });
    let stop = CancellationToken::new();
    end_with_stdin(stop.clone());
    let client = tokio::select! {
        client = connect(&args) => client?,
        () = stop.cancelled() => return Ok(()),
    };
    let shared = Arc::new(Shared {
        args,
        client,
        journal,
        holds: AtomicU64::new(0),
        stop,
    });
    pulse::take(&shared);
    let tasks: Vec<_> = (0..shared.args.tasks)
        .map(|task| tokio::spawn(Cycle::new(&shared, task).run()))
        .collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())?;
    }
    let released = shared.client.shutdown(SHUTDOWN).await.is_ok();
    shared.log(&Event::Ended { released });
    Ok(())
}

/// Connects, however long the server is away.
async fn connect(args: &HolderArgs) -> Result<Client, String> {
    loop {
        let mut builder = Client::builder().ttl(Duration::from_millis(args.ttl_ms));
        if !args.handoff {
            builder = builder.handoff_max(0);
        }
        match builder.connect(&args.url).await {
            Ok(client) => return Ok(client),
            Err(error) if error.kind() == leasehold::ErrorKind::InvalidConfig => {
                return Err(error.to_string());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

fn end_with_stdin(stop: CancellationToken) {
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.cancel();
    });
}
