//! Diagnosis of a store: the settings under which it can lose locks, and how to fix them.
//!
//! Made by [`ClientBuilder::diagnose`](crate::ClientBuilder::diagnose); `leasehold doctor` prints it.
//! Nothing here connects to a store: each rule is a function of the facts that were collected.

#[cfg(feature = "sqlite")]
mod file;
mod finding;
#[cfg(feature = "redis")]
mod servers;

use leasehold_core::Ttl;

pub use self::finding::{Finding, Severity};
use crate::store::diagnose::DiagnosticFacts;

/// The diagnosis of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The store, as its URL without a password.
    pub store: String,
    /// The most severe first.
    pub findings: Vec<Finding>,
    /// The command that creates a user of a Redis server with exactly the permissions that locks need.
    /// `PASSWORD` stands for a password of your choice.
    pub acl: Option<String>,
}

impl Report {
    /// The highest severity of a finding.
    #[must_use]
    pub fn severity(&self) -> Severity {
        let all = self.findings.iter().map(|finding| finding.severity);
        all.max().unwrap_or(Severity::Ok)
    }

    /// Checks the facts. `ttl` is that of the leases in the store.
    #[cfg_attr(
        not(feature = "redis"),
        expect(unused_variables, reason = "only servers have clocks of their own")
    )]
    pub(crate) fn of(facts: &DiagnosticFacts, ttl: Ttl) -> Self {
        let (store, mut findings, acl) = match facts {
            DiagnosticFacts::Memory => ("memory:".to_owned(), vec![memory_store()], None),
            #[cfg(feature = "sqlite")]
            DiagnosticFacts::File(facts) => {
                let store = format!("sqlite:{}", facts.path.display());
                (store, file::check(facts), None)
            }
            #[cfg(feature = "redis")]
            DiagnosticFacts::Servers(servers) => {
                let acl = Some(servers.acl.clone());
                (servers.name.clone(), servers::check(servers, ttl), acl)
            }
        };
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self {
            store,
            findings,
            acl,
        }
    }
}

fn memory_store() -> Finding {
    Finding::warning("store", "locks are in the memory of one client")
        .because("other processes are not excluded, and all locks end with this process")
        .fix("use sqlite:PATH for the processes of a machine, redis://HOST for many machines")
}
