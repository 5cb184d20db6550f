//! What travels to a server and back.
//!
//! * `keys` writes and parses the names of keys and channels, `slots` computes the slot of a cluster that a key has.
//! * `script` is the table of the scripts: which one applies an operation. The comment at the top of `scripts/plain.lua`
//!   describes every key of a lock and the wire format.
//! * `encode` writes the arguments of a call, `decode` reads its reply.
//! * `command` has the requests that no script decides.
//! * `note` parses the texts of holders, `reply` the parts that all replies have.

pub(crate) mod command;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod keys;
pub(crate) mod note;
pub(crate) mod reply;
pub(crate) mod script;
pub(crate) mod slots;
