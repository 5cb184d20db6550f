//! A node, from its start to its end.

use std::path::Path;

use leasehold::watchdog::default_socket;
use leasehold_watchdog::{Listen, Node, Permission, Settings, StoreSettings, TlsFiles, Token};
use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::runtime::Builder;

use crate::args::{ServeArgs, StoreArgs};
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::{connect, credentials, log, secret, variables};

pub(crate) fn serve(args: &ServeArgs, store: &StoreArgs) -> Result<u8, Failure> {
    log::init_service(args.log);
    let settings = settings(args, store)?;
    exit::start_runtime(Builder::new_multi_thread())?.block_on(run(settings))
}

async fn run(settings: Settings) -> Result<u8, Failure> {
    let mut signals = Signals::receive(vec![SIGTERM, SIGINT])?;
    let is_default = settings.listen == [Listen::Unix(default_socket())];
    let started = Node::start(settings).await;
    let node = started.map_err(|error| {
        let failure = Failure::own("the watchdog did not start", error);
        match is_default {
            true => failure.with_detail("--listen unix:PATH names another socket"),
            false => failure,
        }
    })?;
    for address in node.addresses() {
        note!("leasehold: the watchdog listens at {address}");
    }
    if let Some(address) = node.metrics_address() {
        note!("leasehold: its metrics are at http://{address}/metrics");
    }
    tokio::select! {
        _ = signals.any() => {}
        () = node.stopped() => {}
    }
    // A second signal ends the node without waiting for the handover.
    tokio::select! {
        () = node.stop() => {}
        _ = signals.any() => {}
    }
    Ok(0)
}

fn settings(args: &ServeArgs, store: &StoreArgs) -> Result<Settings, Failure> {
    let wrong = |error: leasehold_watchdog::Error| Failure::usage(error.to_string());
    let mut listen = Vec::new();
    for address in &args.listen {
        let address = Listen::parse(address).map_err(wrong)?;
        refuse_missing_directory(&address)?;
        listen.push(address);
    }
    if listen.is_empty() {
        listen.push(Listen::Unix(default_socket()));
    }
    let mut settings = Settings::new(listen, stores(args, store)?);
    settings.max_pause = args.max_pause;
    settings.metrics = args.metrics;
    settings.socket_mode = args.socket_mode;
    settings.limits.clients = args.max_clients;
    settings.limits.leases = args.max_leases;
    settings.limits.leases_per_client = args.max_leases_per_client;
    let allow = args.allow.iter().map(|it| Permission::parse(it));
    settings.allow = allow.collect::<Result<_, _>>().map_err(wrong)?;
    if let Some(name) = &args.name {
        settings.name.clone_from(name);
    }
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        settings.tls = Some(TlsFiles::new(cert, key));
    }
    if let Some(file) = &args.token_file {
        settings.tokens = Token::parse_file(&secret::text("token file", file)?).map_err(wrong)?;
    }
    Ok(settings)
}

/// Refuses a socket in a missing directory: no client would find a misspelt path. Only the directory of the default
/// socket is created.
fn refuse_missing_directory(address: &Listen) -> Result<(), Failure> {
    let is_missing = |directory: &Path| !directory.as_os_str().is_empty() && !directory.is_dir();
    match address {
        Listen::Unix(path)
            if *path != default_socket() && path.parent().is_some_and(is_missing) =>
        {
            let fix = "correct the path, or create the directory";
            let message =
                format!("cannot listen at {address}: its directory does not exist; {fix}");
            Err(Failure::usage(message))
        }
        _ => Ok(()),
    }
}

/// The stores that it may connect to.
fn stores(args: &ServeArgs, store: &StoreArgs) -> Result<Vec<StoreSettings>, Failure> {
    let mut first = StoreSettings::new(connect::ready_url(store)?);
    first.password = credentials::password(store)?;
    first.sentinel_password = secret::in_environment(variables::SENTINEL_PASSWORD)?;
    let mut stores = vec![first];
    for named in &args.serve {
        let Some((name, url)) = named.split_once('=').filter(|(name, _)| is_name(name)) else {
            let message = "--serve takes NAME=URL; a name has letters, digits and _";
            return Err(Failure::usage(message));
        };
        let is_of_name = |store: &StoreSettings| store.name.as_deref() == Some(name);
        if stores.iter().any(is_of_name) {
            let message = format!("--serve names two stores {name}; each needs a name of its own");
            return Err(Failure::usage(message));
        }
        let variable = format!("{}{}", variables::PASSWORD_OF, name.to_ascii_uppercase());
        connect::refuse_password_in_argv("--serve", url, &variable)?;
        let mut further = StoreSettings::new(url);
        further.name = Some(name.to_owned());
        further.password = secret::in_environment(&variable)?;
        stores.push(further);
    }
    Ok(stores)
}

fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_letter)
}
