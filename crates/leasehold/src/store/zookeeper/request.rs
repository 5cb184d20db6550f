//! The requests that the store sends, and what it reads from their replies.

use super::jute::{Reader, Writer};

/// Codes of errors.
pub(super) mod code {
    pub(in super::super) const BAD_ARGUMENTS: i32 = -8;
    pub(in super::super) const UNKNOWN_SESSION: i32 = -12;
    pub(in super::super) const NO_NODE: i32 = -101;
    pub(in super::super) const NO_AUTH: i32 = -102;
    pub(in super::super) const BAD_VERSION: i32 = -103;
    pub(in super::super) const NODE_EXISTS: i32 = -110;
    pub(in super::super) const SESSION_EXPIRED: i32 = -112;
    pub(in super::super) const INVALID_ACL: i32 = -114;
    pub(in super::super) const AUTH_FAILED: i32 = -115;
    pub(in super::super) const NOT_READ_ONLY: i32 = -119;
    pub(in super::super) const THROTTLED: i32 = -127;
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
const SYNC: i32 = 9;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const ERROR: i32 = -1;

/// All rights.
const ALL: i32 = 31;

/// A version that matches any.
const ANY: i32 = -1;

/// A request without its header.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: i32,
    pub(super) body: Vec<u8>,
}

/// Who may read and change the nodes that are created.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Everybody,
    /// The user who creates them.
    Creator,
}

/// The lifetime and the name of a node, by its flags.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    Persistent = 0,
    /// It ends with the session.
    Ephemeral = 1,
    /// The server appends a growing number to its name.
    Sequential = 2,
}

impl Request {
    fn new(kind: i32, body: Writer) -> Self {
        Self { kind, body: body.0 }
    }

    pub(super) fn create(path: &str, data: &[u8], mode: Mode, access: Access) -> Self {
        let (scheme, id) = match access {
            Access::Everybody => ("world", "anyone"),
            Access::Creator => ("auth", ""),
        };
        let body = Writer::default().text(path).bytes(data);
        let body = body.int(1).int(ALL).text(scheme).text(id);
        let body = body.int(mode as i32);
        Self::new(CREATE, body)
    }

    pub(super) fn set(path: &str, data: &[u8], version: i32) -> Self {
        let body = Writer::default().text(path).bytes(data).int(version);
        Self::new(SET_DATA, body)
    }

    pub(super) fn delete(path: &str) -> Self {
        Self::delete_version(path, ANY)
    }

    pub(super) fn delete_version(path: &str, version: i32) -> Self {
        Self::new(DELETE, Writer::default().text(path).int(version))
    }

    pub(super) fn check(path: &str) -> Self {
        Self::new(CHECK, Writer::default().text(path).int(ANY))
    }

    pub(super) fn exists(path: &str) -> Self {
        Self::new(EXISTS, Writer::default().text(path).flag(false))
    }

    pub(super) fn get(path: &str) -> Self {
        Self::new(GET_DATA, Writer::default().text(path).flag(false))
    }

    /// With a watch, the server reports the next change of the children.
    pub(super) fn children(path: &str, watch: bool) -> Self {
        Self::new(GET_CHILDREN, Writer::default().text(path).flag(watch))
    }

    /// What was committed before is seen by the requests behind it.
    pub(super) fn sync(path: &str) -> Self {
        Self::new(SYNC, Writer::default().text(path))
    }

    /// All of them, or none.
    pub(super) fn multi(requests: &[Self]) -> Self {
        let mut body = Writer::default();
        for request in requests {
            body = body.int(request.kind).flag(false).int(ERROR);
            body.0.extend(&request.body);
        }
        Self::new(MULTI, body.int(ERROR).flag(true).int(ERROR))
    }
}

/// The reply to a multi.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Multi {
    /// The version that its first request has written.
    Done(i32),
    /// The number of the first request that failed, and its error.
    Failed(usize, i32),
}

pub(super) fn read_multi(body: &[u8]) -> Option<Multi> {
    let mut reader = Reader(body);
    let (mut version, mut number) = (0, 0);
    loop {
        let (kind, is_last) = (reader.int()?, reader.flag()?);
        reader.int()?;
        if is_last {
            return Some(Multi::Done(version));
        }
        match kind {
            CREATE => {
                reader.text()?;
            }
            SET_DATA => version = reader.stat_version()?,
            DELETE | CHECK => {}
            ERROR => {
                let code = reader.int()?;
                // Those before the one that failed have 0.
                if code != 0 {
                    return Some(Multi::Failed(number, code));
                }
            }
            _ => return None,
        }
        number += 1;
    }
}

/// The data of a node, and their version.
pub(super) fn read_data(body: &[u8]) -> Option<(Vec<u8>, i32)> {
    let mut reader = Reader(body);
    let data = reader.bytes()?.to_vec();
    Some((data, reader.stat_version()?))
}
