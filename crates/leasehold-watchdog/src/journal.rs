//! The journal: the state that a node hands over to its successor, appended as it changes, in a memfd that the
//! service manager keeps.
//!
//! Each entry is a client and a change of its state, in a frame as on a connection. Only the last entry may be
//! incomplete: its node was killed while writing it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold::__private::frame::{Decoder, encode};
use leasehold::__private::wire::ClientInfo;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

/// The length below which a journal is not rewritten, in bytes.
const LENGTH_MIN: u64 = 1024 * 1024;

/// A journal is rewritten when it is this many times as long as after the last rewrite.
const GROWTH_MAX: u64 = 4;

/// The id of a client.
pub(crate) type Id = [u8; 16];

/// A change of the state of a client. Instants are nanoseconds on the clock of this machine since its boot. The order
/// of the variants is part of the format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// The client was added. Its earlier entries are obsolete.
    Client(Box<ClientRecord>),
    /// The descriptor of a process of it is kept under this number.
    Process(u64),
    /// It has registered a lease, or changed the terms of one.
    Lease(u64, Lease),
    /// It has unregistered a lease.
    Unregistered(u64),
    /// It is silent since this instant.
    Silent(u64),
    /// It is alive again.
    Alive,
    /// It has ended.
    Ended,
}

/// What does not change of a client, and its program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientRecord {
    pub(crate) info: ClientInfo,
    pub(crate) address_hash: Option<u64>,
    pub(crate) since: u64,
}

/// A lease of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) name: String,
    pub(crate) ttl_ms: u64,
    pub(crate) silence_timeout_ms: u64,
    pub(crate) keep_until: u64,
}

/// A client as read from a journal.
#[derive(Debug)]
pub(crate) struct SavedClient {
    pub(crate) record: ClientRecord,
    pub(crate) processes: Vec<u64>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) silent_since: Option<u64>,
}

/// The journal of this node.
#[derive(Debug)]
pub(crate) struct Journal(Mutex<JournalFile>);

#[derive(Debug)]
struct JournalFile {
    file: File,
    generation: u64,
    length: u64,
    /// Its length after the last rewrite.
    rewritten_length: u64,
    /// Whether an error of writing was logged.
    failed: bool,
}

impl Journal {
    /// An empty journal.
    pub(crate) fn new(generation: u64) -> io::Result<Self> {
        Ok(Self(Mutex::new(JournalFile {
            file: File::from(memfd_create("leasehold-journal", MemfdFlags::CLOEXEC)?),
            generation,
            length: 0,
            rewritten_length: 0,
            failed: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, JournalFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a change of a client.
    pub(crate) fn write(&self, client: Id, change: &Change) {
        let mut journal = self.lock();
        let frame = encode(&(client, change)).map_err(io::Error::other);
        let written = frame.and_then(|frame| {
            journal.length += frame.len() as u64;
            journal.file.write_all(&frame)
        });
        if let Err(error) = written
            && !std::mem::replace(&mut journal.failed, true)
        {
            tracing::error!(%error, "cannot write the journal, the next node will not take over every client");
        }
    }

    /// Begins an empty journal of the next generation, into which the caller writes the whole state.
    pub(crate) fn begin_rewrite(&self) -> io::Result<()> {
        let file = File::from(memfd_create("leasehold-journal", MemfdFlags::CLOEXEC)?);
        let mut journal = self.lock();
        journal.file = file;
        journal.generation += 1;
        journal.length = 0;
        Ok(())
    }

    /// Marks the rewrite as complete. Returns the generation and the file for the service manager.
    pub(crate) fn finish_rewrite(&self) -> io::Result<(u64, OwnedFd)> {
        let mut journal = self.lock();
        journal.rewritten_length = journal.length;
        Ok((journal.generation, OwnedFd::from(journal.file.try_clone()?)))
    }

    /// Whether it has grown enough to be rewritten.
    pub(crate) fn needs_rewrite(&self) -> bool {
        let journal = self.lock();
        journal.length > LENGTH_MIN && journal.length / GROWTH_MAX > journal.rewritten_length
    }
}

/// Reads the clients from a journal.
pub(crate) fn read(file: OwnedFd) -> BTreeMap<Id, SavedClient> {
    let file = File::from(file);
    let mut decoder = Decoder::default();
    let mut clients = BTreeMap::new();
    let mut at = 0;
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match file.read_at(&mut bytes, at) {
            Ok(0) => return clients,
            Ok(read) => {
                at += read as u64;
                decoder.push(&bytes[..read]);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the journal to its end");
                return clients;
            }
        }
        loop {
            match decoder.message() {
                Ok(Some((client, change))) => apply(&mut clients, client, change),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "the journal is damaged, the rest of it is ignored");
                    return clients;
                }
            }
        }
    }
}

fn apply(clients: &mut BTreeMap<Id, SavedClient>, client: Id, change: Change) {
    match (clients.get_mut(&client), change) {
        (_, Change::Client(record)) => {
            let saved = SavedClient {
                record: *record,
                processes: Vec::new(),
                leases: BTreeMap::new(),
                silent_since: None,
            };
            clients.insert(client, saved);
        }
        (None, _) => {}
        (Some(saved), Change::Process(descriptor_id)) => saved.processes.push(descriptor_id),
        (Some(saved), Change::Lease(number, lease)) => drop(saved.leases.insert(number, lease)),
        (Some(saved), Change::Unregistered(number)) => drop(saved.leases.remove(&number)),
        (Some(saved), Change::Silent(since)) => saved.silent_since = Some(since),
        (Some(saved), Change::Alive) => saved.silent_since = None,
        (Some(_), Change::Ended) => drop(clients.remove(&client)),
    }
}

#[cfg(test)]
mod tests;
