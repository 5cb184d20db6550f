//! A node of the watchdog in a process of its own.

use std::path::PathBuf;

use leasehold_testkit::helper::{self, Commands};
use leasehold_watchdog::{Listen, Node, Settings, StoreSettings, TlsFiles, Token};
use serde::{Deserialize, Serialize};

/// The settings of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeConfig {
    pub(crate) listen: Vec<String>,
    pub(crate) url: String,
    /// The name of the store for clients, if it is not its URL.
    pub(crate) store: Option<String>,
    /// The certificate, its key, and the token of clients, for a node that listens on TCP.
    pub(crate) tls: Option<(PathBuf, PathBuf, String)>,
}

/// Runs a node until its commands end or one of them is `stop`. Replies `ready` when it listens.
pub(crate) fn run(config: NodeConfig, mut commands: Commands) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let node = Node::start(settings(config)).await.unwrap();
        helper::reply("ready");
        if commands.next().await.is_some() {
            node.stop().await;
        }
    });
}

fn settings(config: NodeConfig) -> Settings {
    let listen = config.listen.iter();
    let listen = listen.map(|address| Listen::parse(address).unwrap());
    let mut store = StoreSettings::new(config.url);
    store.name = config.store;
    let mut settings = Settings::new(listen.collect(), vec![store]);
    if let Some((cert, key, token)) = config.tls {
        settings.tls = Some(TlsFiles::new(cert, key));
        settings.tokens = Token::parse_file(&token).unwrap();
    }
    settings
}
