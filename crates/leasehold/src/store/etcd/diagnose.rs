//! Collects the facts about a cluster for [`doctor`](crate::doctor). Changes no key.

use std::time::Duration;

use super::cluster::Cluster;
use super::error::{Failed, Remedy};
use super::messages::{Members, Range, Status, StatusReply};
use super::{SERVICE, inbox};
use crate::Result;
use crate::store::diagnose::{EtcdFacts, MemberFacts};
use crate::store::members::Address;
use crate::store::options::OpenOptions;

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
    let cluster = Cluster::new(address, options)?;
    cluster.connect().await?;
    let mut statuses = Vec::with_capacity(cluster.members.len());
    for (nth, member) in cluster.members.iter().enumerate() {
        let status = cluster.ask_member(nth, &Status {}).await;
        statuses.push(MemberFacts::of(member.address(), status));
    }
    let prefix = &cluster.keys.0;
    let reading = cluster.ask(&Range::keys(prefix, prefix, 1)).await.err();
    let lease = cluster.grant(inbox::TTL).await.ok();
    if let Some(lease) = &lease {
        // If it is not revoked, it ends by itself.
        let _ = cluster.revoke(lease.id).await;
    }
    let (mut voters, mut missing) = (None, Vec::new());
    match cluster.ask(&Members {}).await {
        Ok(reply) => {
            let voting = reply.members.iter().filter(|member| !member.is_learner);
            voters = Some(voting.count());
        }
        Err(error) => missing.push(format!("the members ({error})")),
    }
    Ok(EtcdFacts {
        name,
        statuses,
        voters,
        session: lease.map(|it| Duration::from_secs(u64::try_from(it.ttl).unwrap_or(0))),
        has_user,
        has_tls,
        reading: reading.map(|error| error.to_string()),
        missing,
    })
}

impl MemberFacts {
    fn of(address: String, status: Result<StatusReply, Failed>) -> Self {
        let (status, failed) = match status {
            Ok(status) => (status, None),
            Err(failed) => (StatusReply::default(), Some(failed)),
        };
        let is_foreign = |failed: &Failed| failed.remedy == Remedy::OtherCluster;
        let size = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let alarms = status.errors.iter();
        Self {
            address,
            version: Some(status.version).filter(|version| !version.is_empty()),
            size: size(status.size),
            quota: Some(size(status.quota)).filter(|quota| *quota > 0),
            alarms: alarms.map(|alarm| alarm.trim().to_owned()).collect(),
            is_foreign: failed.as_ref().is_some_and(is_foreign),
            error: failed.map(|failed| failed.error.to_string()),
        }
    }
}
