//! Collects the facts about a cluster for [`doctor`](crate::doctor). Changes nothing.

use serde_json::{Value, json};

use super::SERVICE;
use super::encoding::{encoded, number, range_end};
use super::gateway::Gateway;
use crate::Result;
use crate::store::diagnose::{EtcdFacts, MemberFacts};
use crate::store::members::Address;
use crate::store::options::OpenOptions;

const MEMBERS: &str = "/v3/cluster/member/list";
const STATUS: &str = "/v3/maintenance/status";

/// Collects the facts about the cluster that a URL names.
///
/// # Errors
///
/// As for [`open`](super::super::open()).
pub(in crate::store) async fn diagnose(url: &str, options: &OpenOptions) -> Result<EtcdFacts> {
    let address = Address::parse(SERVICE, url, options)?;
    let name = address.to_string();
    let facts = collect(name.clone(), address, options).await;
    facts.map_err(|error| error.at_store(name))
}

async fn collect(name: String, address: Address, options: &OpenOptions) -> Result<EtcdFacts> {
    let (has_user, has_tls) = (address.user.is_some(), address.files.is_some());
    let prefix = address.prefix.clone();
    let gateway = Gateway::new(address, options)?;
    gateway.connect().await?;
    let mut statuses = Vec::with_capacity(gateway.members.len());
    for (nth, member) in gateway.members.iter().enumerate() {
        let status = gateway.ask_member(nth, STATUS, &json!({})).await;
        statuses.push(MemberFacts::of(member.address(), status));
    }
    let range = json!({
        "key": encoded(&prefix), "range_end": encoded(range_end(&prefix)), "limit": "1", "keys_only": true
    });
    let reading = gateway.range(&range).await.err();
    let (mut voters, mut missing) = (None, Vec::new());
    match gateway.ask(MEMBERS, &json!({})).await {
        Ok(reply) => {
            let members = reply["members"].as_array().into_iter().flatten();
            voters = Some(members.filter(|member| member["isLearner"] != true).count());
        }
        Err(error) => missing.push(format!("the members ({error})")),
    }
    Ok(EtcdFacts {
        name,
        statuses,
        voters,
        has_user,
        has_tls,
        reading: reading.map(|error| error.to_string()),
        missing,
    })
}

impl MemberFacts {
    fn of(address: String, status: Result<Value>) -> Self {
        let (status, error) = match status {
            Ok(status) => (status, None),
            Err(error) => (Value::Null, Some(error.to_string())),
        };
        let size = |field: &str| number(&status[field]).and_then(|size| size.parse().ok());
        let alarms = status["errors"].as_array().into_iter().flatten();
        Self {
            address,
            version: status["version"].as_str().map(str::to_owned),
            size: size("dbSize").unwrap_or(0),
            quota: size("dbSizeQuota").filter(|quota| *quota > 0),
            alarms: alarms
                .filter_map(|it| Some(it.as_str()?.trim().to_owned()))
                .collect(),
            error,
        }
    }
}
