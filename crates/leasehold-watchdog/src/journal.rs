//! The journal: the state that a node hands over to its successor, appended as it changes, in a memfd that the
//! service manager keeps.
//!
//! Each entry is a frame, as on a connection. Only the last entry may be incomplete: its node was killed while
//! writing it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

use leasehold::__private::frame::{Decoder, encode};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

/// The length below which a journal is not rewritten, in bytes.
const LENGTH_MIN: u64 = 1024 * 1024;

/// A journal is rewritten when it is this many times as long as after the last rewrite.
const GROWTH_MAX: u64 = 4;

/// A change of state. Instants are nanoseconds on the clock of this machine since its boot. The order of the
/// variants is part of the format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A client was added. Its earlier entries are obsolete.
    Client(Id, Box<Known>),
    /// The descriptor of a process of it is kept under this number.
    Process(Id, u64),
    /// It has registered a lease, or changed the terms of one.
    Lease(Id, u64, Lease),
    /// It has unregistered a lease.
    Left(Id, u64),
    /// It is silent since this instant.
    Silent(Id, u64),
    /// It is alive again.
    Heard(Id),
    /// It has ended.
    Over(Id),
}

/// The id of a client.
pub(crate) type Id = [u8; 16];

/// The client info of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) process_nonce: [u8; 16],
    pub(crate) drawn: Option<u64>,
    pub(crate) store: String,
    pub(crate) namespace: String,
    pub(crate) tenant: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) label: String,
    pub(crate) since: u64,
}

/// A lease of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) name: String,
    pub(crate) ttl_ms: u64,
    pub(crate) patience_ms: u64,
    pub(crate) keep_until: u64,
}

/// A client as read from a journal.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) known: Known,
    pub(crate) processes: Vec<u64>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) silent_since: Option<u64>,
}

/// The journal of this node.
#[derive(Debug)]
pub(crate) struct Journal(Mutex<Book>);

#[derive(Debug)]
struct Book {
    file: File,
    generation: u64,
    length: u64,
    /// Its length after the last rewrite.
    began: u64,
    failed: bool,
}

impl Journal {
    /// An empty journal.
    pub(crate) fn new(generation: u64) -> std::io::Result<Self> {
        Ok(Self(Mutex::new(Book {
            file: File::from(memfd_create("leasehold-journal", MemfdFlags::CLOEXEC)?),
            generation,
            length: 0,
            began: 0,
            failed: false,
        })))
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry.
    pub(crate) fn write(&self, entry: &Entry) {
        self.book().write(entry);
    }

    /// Begins an empty journal of the next generation, into which the caller writes the whole state.
    pub(crate) fn begin_anew(&self) -> std::io::Result<()> {
        let file = File::from(memfd_create("leasehold-journal", MemfdFlags::CLOEXEC)?);
        let mut book = self.book();
        book.file = file;
        book.generation += 1;
        book.length = 0;
        Ok(())
    }

    /// Marks the rewrite as complete. Returns the generation and the file for the service manager.
    pub(crate) fn is_whole(&self) -> std::io::Result<(u64, OwnedFd)> {
        let mut book = self.book();
        book.began = book.length;
        Ok((book.generation, OwnedFd::from(book.file.try_clone()?)))
    }

    /// Whether it has grown enough to be rewritten.
    pub(crate) fn is_long(&self) -> bool {
        let book = self.book();
        book.length > LENGTH_MIN && book.length / GROWTH_MAX > book.began
    }
}

impl Book {
    fn write(&mut self, entry: &Entry) {
        let written = encode(entry)
            .map_err(std::io::Error::other)
            .and_then(|frame| {
                self.length += frame.len() as u64;
                self.file.write_all(&frame)
            });
        if let Err(error) = written
            && !self.failed
        {
            self.failed = true;
            tracing::error!(%error, "cannot write the journal, the next node will not take over every client");
        }
    }
}

/// Reads the clients from a journal.
pub(crate) fn read(file: OwnedFd) -> BTreeMap<Id, Saved> {
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
            match decoder.word() {
                Ok(Some(entry)) => apply(&mut clients, entry),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "the journal is damaged, the rest of it is ignored");
                    return clients;
                }
            }
        }
    }
}

fn apply(clients: &mut BTreeMap<Id, Saved>, entry: Entry) {
    let (Entry::Client(id, _)
    | Entry::Process(id, _)
    | Entry::Lease(id, ..)
    | Entry::Left(id, _)
    | Entry::Silent(id, _)
    | Entry::Heard(id)
    | Entry::Over(id)) = entry;
    if let Entry::Client(_, known) = entry {
        let saved = Saved {
            known: *known,
            processes: Vec::new(),
            leases: BTreeMap::new(),
            silent_since: None,
        };
        clients.insert(id, saved);
        return;
    }
    let Some(saved) = clients.get_mut(&id) else {
        return;
    };
    match entry {
        Entry::Client(..) => {}
        Entry::Process(_, place) => saved.processes.push(place),
        Entry::Lease(_, number, lease) => {
            saved.leases.insert(number, lease);
        }
        Entry::Left(_, number) => {
            saved.leases.remove(&number);
        }
        Entry::Silent(_, since) => saved.silent_since = Some(since),
        Entry::Heard(_) => saved.silent_since = None,
        Entry::Over(_) => {
            clients.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
