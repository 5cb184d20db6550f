//! Diagnosis of a store: the settings under which it can lose locks, and how to fix them.
//!
//! [`ClientBuilder::diagnose`] makes the report, and has an example; `leasehold doctor` prints it.

#[cfg(feature = "object-store")]
mod bucket;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod clock;
#[cfg(feature = "postgres")]
mod database;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "sqlite")]
mod file;
mod finding;
#[cfg(feature = "redis")]
mod servers;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use leasehold_core::Ttl;

pub use self::finding::{Finding, Severity};
use crate::store::diagnose::DiagnosticFacts;
use crate::{ClientBuilder, Result, store};

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
        finding::worst(&self.findings)
    }

    /// Checks the facts. `ttl` is that of the leases in the store.
    #[cfg_attr(
        not(any(feature = "redis", feature = "object-store")),
        expect(
            unused_variables,
            reason = "the ttl is compared with clocks and latencies of services"
        )
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
            #[cfg(feature = "postgres")]
            DiagnosticFacts::Database(facts) => (facts.name.clone(), database::check(facts), None),
            #[cfg(feature = "zookeeper")]
            DiagnosticFacts::Zookeeper(facts) => {
                (facts.name.clone(), zookeeper::check(facts), None)
            }
            #[cfg(feature = "etcd")]
            DiagnosticFacts::Etcd(facts) => (facts.name.clone(), etcd::check(facts), None),
            #[cfg(feature = "object-store")]
            DiagnosticFacts::Bucket(facts) => (facts.name.clone(), bucket::check(facts, ttl), None),
        };
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self {
            store,
            findings,
            acl,
        }
    }
}

impl ClientBuilder {
    /// Reports settings under which the store that the URL names can lose locks. It changes nothing in the store, and
    /// does not create a file.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use leasehold::Client;
    /// use leasehold::doctor::Severity;
    ///
    /// let report = Client::builder().diagnose("memory:").await?;
    /// assert_eq!(report.severity(), Severity::Warning);
    /// for finding in &report.findings {
    ///     println!("{}: {}", finding.severity, finding.observed);
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`]. A reachable store that is not fit for locks is not an error: the report says so.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn diagnose(self, url: &str) -> Result<Report> {
        let policy = self.config.policy()?;
        let (options, space) = (self.checked_options()?, self.config.space()?);
        let facts = store::diagnose(url, &options, &space, self.config.durability).await?;
        Ok(Report::of(&facts, policy.ttl))
    }
}

/// The SQL that creates the schema of a PostgreSQL store and grants a role the rights that locks need, for a database
/// in which the user of the locks may not create it. It is one transaction, and can be run again.
///
/// ```
/// let setup = leasehold::doctor::postgres_setup(Some("app"));
/// assert!(setup.contains("GRANT USAGE ON SCHEMA leasehold TO \"app\";"));
/// ```
#[cfg(feature = "postgres")]
#[doc(hidden)]
#[must_use]
pub fn postgres_setup(role: Option<&str>) -> String {
    store::postgres_setup(role)
}

fn memory_store() -> Finding {
    Finding::warning("store", "locks are in the memory of one client")
        .because("other processes are not excluded, and all locks end with this process")
        .fix(
            "use sqlite:PATH for the processes of a machine, redis://HOST or postgres://HOST/DB for many machines",
        )
}
