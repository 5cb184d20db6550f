//! Listings and reports as `serde` writes them, which is what `leasehold` prints with `--json`.
//!
//! A time is text in RFC 3339, a duration a number of milliseconds, an id text. What is not known is `None`.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

#[cfg(feature = "doctor")]
use crate::doctor::{Finding, Report};
use crate::{Access, ClientInfo, Completion, HolderInfo, LeaseKind, LockInfo, Token, WaiterInfo};

impl Serialize for LockInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("LockInfo", 15)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("kind", kind(self.kind))?;
        fields.serialize_field("permits", &self.permits)?;
        fields.serialize_field("lease", &self.lease.to_string())?;
        fields.serialize_field("min_hold", &self.min_hold)?;
        fields.serialize_field("token", &self.token.map(Token::get))?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("weight", &self.weight)?;
        fields.serialize_field("number", &self.number)?;
        fields.serialize_field("access", &self.access.map(access))?;
        fields.serialize_field("time_left_ms", &millis(self.time_left))?;
        fields.serialize_field("since", &self.since.and_then(rfc3339))?;
        fields.serialize_field("holder", &self.client)?;
        let others: Vec<_> = self
            .others
            .iter()
            .map(|it| (self.kind, it))
            .map(Holder)
            .collect();
        fields.serialize_field("others", &others)?;
        fields.serialize_field("waiters", &self.waiters)?;
        fields.end()
    }
}

/// A holder of a lock of a kind.
struct Holder<'a>((LeaseKind, &'a HolderInfo));

impl Serialize for Holder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, holder) = self.0;
        let is_semaphore = kind == LeaseKind::Semaphore;
        let held_for = holder.access().filter(|_| kind == LeaseKind::RwLock);
        let mut fields = serializer.serialize_struct("HolderInfo", 7)?;
        fields.serialize_field("lease", &holder.lease.to_string())?;
        fields.serialize_field("min_hold", &holder.is_reserved)?;
        fields.serialize_field("weight", &is_semaphore.then_some(holder.weight))?;
        fields.serialize_field("number", &holder.number)?;
        fields.serialize_field("access", &held_for.map(access))?;
        fields.serialize_field("time_left_ms", &millis(holder.time_left))?;
        fields.serialize_field("holder", &holder.client)?;
        fields.end()
    }
}

impl Serialize for WaiterInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("WaiterInfo", 2)?;
        fields.serialize_field("lease", &self.lease.to_string())?;
        fields.serialize_field("client", &self.client)?;
        fields.end()
    }
}

impl Serialize for ClientInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ClientInfo", 5)?;
        fields.serialize_field("host", &self.host)?;
        fields.serialize_field("pid", &self.pid)?;
        fields.serialize_field("program", &self.program)?;
        fields.serialize_field("label", &self.label)?;
        fields.serialize_field("connected_since", &rfc3339(self.since))?;
        fields.end()
    }
}

/// Whether the next run is overdue is decided by the clock of this machine, when the run is written.
impl Serialize for Completion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Completion", 15)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("key", &self.key)?;
        fields.serialize_field("period_ms", &self.period.map(millis))?;
        fields.serialize_field("slot", &self.slot.and_then(rfc3339))?;
        fields.serialize_field("next_slot", &self.next_slot.and_then(rfc3339))?;
        fields.serialize_field("overdue", &self.is_overdue(SystemTime::now()))?;
        fields.serialize_field("started", &rfc3339(self.started))?;
        fields.serialize_field("finished", &rfc3339(self.finished))?;
        fields.serialize_field("took_ms", &millis(self.took()))?;
        fields.serialize_field("exit_code", &self.exit_code)?;
        fields.serialize_field("host", &self.host)?;
        fields.serialize_field("program", &self.program)?;
        fields.serialize_field("label", &self.label)?;
        fields.serialize_field("lease", &self.lease.to_string())?;
        fields.serialize_field("token", &self.token.get())?;
        fields.end()
    }
}

#[cfg(feature = "doctor")]
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Report", 4)?;
        fields.serialize_field("store", &self.store)?;
        fields.serialize_field("severity", self.severity().as_str())?;
        fields.serialize_field("findings", &self.findings)?;
        fields.serialize_field("acl", &self.acl)?;
        fields.end()
    }
}

#[cfg(feature = "doctor")]
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 6)?;
        fields.serialize_field("severity", self.severity.as_str())?;
        fields.serialize_field("check", self.check)?;
        fields.serialize_field("node", &self.node)?;
        fields.serialize_field("observed", &self.observed)?;
        fields.serialize_field("consequence", &self.consequence)?;
        fields.serialize_field("fix", &self.fix)?;
        fields.end()
    }
}

const fn kind(kind: LeaseKind) -> &'static str {
    match kind {
        LeaseKind::Mutex => "mutex",
        LeaseKind::Semaphore => "semaphore",
        LeaseKind::RwLock => "rw_lock",
    }
}

const fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Upgradable => "upgradable_read",
        Access::Write => "write",
    }
}

/// `None`: the time is too far away to be written.
fn rfc3339(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Some(format!("{time:.3}"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use leasehold_core::{ClientId, LeaseId};

    use super::*;

    #[test]
    fn a_lock_has_all_its_fields_in_one_order() {
        let client = ClientId::from_random([0xab; 16]);
        let lease = LeaseId { client, number: 4 };
        let info = ClientInfo {
            host: "ci-7".to_owned(),
            pid: 812,
            program: "deploy.sh".to_owned(),
            label: "#42".to_owned(),
            since: UNIX_EPOCH + Duration::from_micros(1_500_001),
        };
        let mut lock = LockInfo::of("deploy", lease);
        lock.time_left = Duration::from_micros(1_999);
        lock.waiters = vec![WaiterInfo {
            lease,
            client: Some(info),
        }];
        let id = "ab".repeat(16);
        let expected = [
            format!(
                r#"{{"name":"deploy","kind":"mutex","permits":null,"lease":"{id}:4","min_hold":false,"#
            ),
            r#""token":null,"count":1,"weight":null,"number":null,"access":null,"#.to_owned(),
            r#""time_left_ms":1,"since":null,"holder":null,"others":[],"waiters":["#.to_owned(),
            format!(
                r#"{{"lease":"{id}:4","client":{{"host":"ci-7","pid":812,"program":"deploy.sh","#
            ),
            r##""label":"#42","connected_since":"1970-01-01T00:00:01.500Z"}}]}"##.to_owned(),
        ];
        assert_eq!(serde_json::to_string(&lock).unwrap(), expected.concat());
    }
}
