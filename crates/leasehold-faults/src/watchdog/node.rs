//! A process that is a node of the watchdog.

use std::io::BufRead as _;
use std::path::PathBuf;
use std::thread;

use leasehold_watchdog::{Listen, Node, Settings, StoreSettings, TlsFiles, Token};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::oneshot;

/// What the campaign tells a node.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// Where to listen.
    #[arg(long, required = true)]
    listen: Vec<String>,
    /// The store.
    #[arg(long)]
    url: String,
    /// What the clients call the store, if it is not its URL.
    #[arg(long)]
    store: Option<String>,
    /// The certificate.
    #[arg(long, requires = "key")]
    cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "cert")]
    key: Option<PathBuf>,
    /// Lets clients in over TCP.
    #[arg(long)]
    token: Option<String>,
}

/// Runs a node until its standard input says `stop` or ends.
///
/// # Errors
///
/// What keeps it from starting.
pub(crate) fn run(args: NodeArgs) -> Result<(), String> {
    // A stopped process reads no input, so that alone would not end it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let (say, said) = oneshot::channel();
    thread::spawn(move || {
        let order = std::io::stdin().lock().lines().next();
        let _ = say.send(matches!(order, Some(Ok(order)) if order == "stop"));
    });
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let node = Node::start(settings(args)?).await;
        let node = node.map_err(|error| error.to_string())?;
        println!("ready");
        if said.await == Ok(true) {
            node.stop().await;
        }
        Ok(())
    })
}

fn settings(args: NodeArgs) -> Result<Settings, String> {
    let listen = args.listen.iter().map(|address| Listen::parse(address));
    let listen = listen.collect::<Result<_, _>>();
    let tokens = Token::parse_file(args.token.as_deref().unwrap_or_default());
    Ok(Settings {
        listen: listen.map_err(|error| error.to_string())?,
        stores: vec![StoreSettings {
            name: args.store,
            url: args.url,
            ..StoreSettings::default()
        }],
        tls: args
            .cert
            .zip(args.key)
            .map(|(cert, key)| TlsFiles { cert, key }),
        tokens: tokens.map_err(|error| error.to_string())?,
        ..Settings::default()
    })
}
