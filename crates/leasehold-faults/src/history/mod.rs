//! What is written down while faults happen, one line for each thing, and read again by the judge.

mod faults;
mod folder;
mod lines;

pub(crate) use self::faults::{Fault, Happened};
pub(crate) use self::folder::{History, Process, read};
pub(crate) use self::lines::{Event, Journal, Note, Seen, Write};
