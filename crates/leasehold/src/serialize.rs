//! Listings and reports as `serde` writes them, which is what `leasehold` prints with `--json`.
//!
//! A time is text in RFC 3339, a duration a number of milliseconds, an id text. What is not known is `None`.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

#[cfg(feature = "doctor")]
use crate::doctor::{Finding, Report};
use crate::{ClientInfo, Completion, LockInfo, Token, WaiterInfo};

impl Serialize for LockInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("LockInfo", 9)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("lease", &self.lease.to_string())?;
        fields.serialize_field("min_hold", &self.min_hold)?;
        fields.serialize_field("token", &self.token.map(Token::get))?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("time_left_ms", &millis(self.time_left))?;
        fields.serialize_field("since", &self.since.and_then(rfc3339))?;
        fields.serialize_field("holder", &self.client)?;
        fields.serialize_field("waiters", &self.waiters)?;
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
                r#"{{"name":"deploy","lease":"{id}:4","min_hold":false,"token":null,"count":1,"#
            ),
            r#""time_left_ms":1,"since":null,"holder":null,"waiters":["#.to_owned(),
            format!(
                r#"{{"lease":"{id}:4","client":{{"host":"ci-7","pid":812,"program":"deploy.sh","#
            ),
            r##""label":"#42","connected_since":"1970-01-01T00:00:01.500Z"}}]}"##.to_owned(),
        ];
        assert_eq!(serde_json::to_string(&lock).unwrap(), expected.concat());
    }
}
