//! A holder process of the campaign: it takes its locks, tells what becomes of them, and does to itself what
//! it is told to.
//!
//! What it says is one line each, see [`super::said`]. Its runtime has a thread of its own, so that the main
//! thread can go.

mod fate;
mod hold;

use std::io::BufRead as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use leasehold::watchdog::Watchdog;
use leasehold::{Client, ErrorKind};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::watch;

use self::hold::{Hold, Tally};
use super::said::{Said, say};

/// What the campaign tells a holder.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SubjectArgs {
    /// The store.
    #[arg(long)]
    pub(super) url: String,
    /// The nodes of the watchdog.
    #[arg(long)]
    pub(super) node: Vec<String>,
    /// Who signed the certificates of those that are reached by TCP.
    #[arg(long)]
    pub(super) ca: Option<PathBuf>,
    /// What lets it in there.
    #[arg(long)]
    pub(super) token: Option<String>,
    /// The ttl of its leases.
    #[arg(long)]
    pub(super) ttl_ms: u64,
    /// What the names of its locks begin with.
    #[arg(long)]
    pub(super) prefix: String,
    /// How many locks each client takes.
    #[arg(long, default_value_t = 1)]
    pub(super) locks: usize,
    /// How many clients there are in the process.
    #[arg(long, default_value_t = 1)]
    pub(super) clients: usize,
    /// Takes a lock again that it lost.
    #[arg(long)]
    pub(super) again: bool,
    /// Tells only how many leases are how, and that when it is asked.
    #[arg(long)]
    pub(super) quiet: bool,
}

/// What a holder is told over its standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Hold,
    Release,
}

/// What only the main thread does.
enum Deed {
    /// It ends, and the others go on.
    DropMain,
    /// All of the process ends.
    End(Result<(), String>),
}

/// Runs until its standard input ends, which also happens when the campaign dies.
///
/// # Errors
///
/// What keeps it from holding its locks.
pub(crate) fn run(args: SubjectArgs) -> Result<(), String> {
    // A stopped process reads no input, so that alone would not end it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let (deeds, asked) = channel();
    let (wish, wished) = watch::channel(Wish::Hold);
    let tally = Arc::<Tally>::default();
    let orders = Orders {
        args: args.clone(),
        wish,
        tally: Arc::clone(&tally),
        deeds: deeds.clone(),
    };
    thread::spawn(move || orders.obey());
    thread::spawn(move || {
        let ended = live(args, &tally, &wished);
        let _ = deeds.send(Deed::End(ended));
    });
    wait(&asked)
}

fn wait(asked: &Receiver<Deed>) -> Result<(), String> {
    match asked.recv() {
        Ok(Deed::DropMain) => fate::end_this_thread(),
        Ok(Deed::End(ended)) => ended,
        Err(_) => Ok(()),
    }
}

/// Obeys what is said on the standard input.
struct Orders {
    args: SubjectArgs,
    wish: watch::Sender<Wish>,
    tally: Arc<Tally>,
    deeds: Sender<Deed>,
}

impl Orders {
    fn obey(self) {
        for order in std::io::stdin().lock().lines() {
            match order.as_deref() {
                Ok("release") => drop(self.wish.send_replace(Wish::Release)),
                Ok("count") => say(&self.tally.count()),
                Ok("fork") => say(&Said::Forked(fate::fork())),
                Ok("drop-main") => drop(self.deeds.send(Deed::DropMain)),
                Ok("exec") => {
                    // It comes back only if it cannot.
                    let why = fate::exec(&self.args);
                    let _ = self.deeds.send(Deed::End(Err(why)));
                }
                _ => break,
            }
        }
        // At once: the campaign is over, or dead.
        std::process::exit(0);
    }
}

fn live(args: SubjectArgs, tally: &Arc<Tally>, wish: &watch::Receiver<Wish>) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut holds = Vec::new();
        for nth in 0..args.clients {
            let client = connect(&args).await?;
            holds.extend((0..args.locks).map(|lock| {
                let name = format!("{}-{nth}-{lock}", args.prefix);
                let hold = Hold {
                    client: client.clone(),
                    name,
                    tally: Arc::clone(tally),
                    wish: wish.clone(),
                    again: args.again,
                    quiet: args.quiet,
                };
                tokio::spawn(hold.run())
            }));
        }
        for hold in holds {
            let ended = hold.await.map_err(|error| error.to_string());
            ended.and_then(|ended| ended.map_err(|error| error.to_string()))?;
        }
        Ok(())
    })
}

/// Connects; a node that is away at this moment will be back.
async fn connect(args: &SubjectArgs) -> Result<Client, String> {
    loop {
        let mut builder = Client::builder().ttl(Duration::from_millis(args.ttl_ms));
        if let Some(watchdog) = watchdog(args)? {
            builder = builder.watchdog(watchdog);
        }
        match builder.connect(&args.url).await {
            Ok(client) => return Ok(client),
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Required, so that a lock that is held is one that a node looks after.
fn watchdog(args: &SubjectArgs) -> Result<Option<Watchdog>, String> {
    let Some((first, more)) = args.node.split_first() else {
        return Ok(None);
    };
    let failed = |error: leasehold::Error| error.to_string();
    let mut watchdog = Watchdog::at(first).map_err(failed)?.required();
    for node in more {
        watchdog = watchdog.and(node).map_err(failed)?;
    }
    if let Some(ca) = &args.ca {
        watchdog = watchdog.ca_file(ca);
    }
    if let Some(token) = &args.token {
        watchdog = watchdog.token(token.as_str());
    }
    Ok(Some(watchdog))
}
