//! The work that is compared.

use std::time::Duration;

/// One kind of work: a row of the summary.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) processes: usize,
    pub(super) tasks: usize,
    /// Whether each task has a lock of its own.
    pub(super) own_names: bool,
    pub(super) section_us: u32,
    pub(super) primitive: Primitive,
    pub(super) deployment: Deployment,
}

/// What is acquired and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    Mutex,
    /// One of five permits.
    Semaphore,
    /// One of ten acquisitions is that of a writer.
    RwLock,
}

/// The servers of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    Single,
    /// One server on a core of its own, and the runner on another.
    Pinned,
    /// Five servers, of which a majority decides.
    Masters,
    /// The same behind a slow network.
    DistantMasters,
    /// The same, and one of them ends between the warm-up and the window.
    DeadMaster,
    Cluster,
    /// One member of etcd.
    Etcd,
    /// One server of ZooKeeper.
    Zookeeper,
}

/// A lock of its own for each task.
const OWN: Work = Work {
    name: "uncontended",
    what: "one task, one lock",
    processes: 1,
    tasks: 1,
    own_names: true,
    section_us: 0,
    primitive: Primitive::Mutex,
    deployment: Deployment::Single,
};

/// One lock for all tasks.
const SHARED: Work = Work {
    name: "contended",
    what: "64 tasks in one process, one lock, empty critical section",
    tasks: 64,
    own_names: false,
    ..OWN
};

/// All of it.
pub(super) const WORKS: [Work; 23] = [
    OWN,
    OWN.at(Deployment::Pinned).named(
        "pinned",
        "one task, one lock, client and server each on a core of its own",
    ),
    OWN.with_tasks(1, 64).named("independent", "64 tasks, a lock each"),
    OWN.with_tasks(1, 256).named("independent-256", "256 tasks, a lock each"),
    SHARED,
    SHARED.with_tasks(4, 16).named(
        "processes",
        "4 processes of 16 tasks, one lock, empty critical section",
    ),
    SHARED.with_tasks(4, 16).with_section().named(
        "working",
        "4 processes of 16 tasks, one lock, critical section of 1 ms",
    ),
    SHARED.with_tasks(2, 1).named(
        "ping-pong",
        "2 processes of one task, one lock: from release to acquisition in the other",
    ),
    OWN.at(Deployment::Masters).named("masters", "one task, one lock over 5 masters"),
    OWN.with_tasks(1, 64).at(Deployment::Masters).named(
        "masters-independent",
        "64 tasks, a lock each, over 5 masters",
    ),
    OWN.at(Deployment::DistantMasters).named(
        "distant-masters",
        "one task, one lock over 5 masters, 5 ms away each way",
    ),
    OWN.at(Deployment::DeadMaster).named(
        "dead-master",
        "one task, one lock over 5 masters, 5 ms away each way, one of them dead",
    ),
    OWN.with_tasks(1, 256).at(Deployment::Cluster).named(
        "cluster",
        "256 tasks, a lock each, in a cluster of three: its server time beside that of independent-256",
    ),
    OWN.at(Deployment::Etcd).named("etcd", "one task, one lock in etcd"),
    OWN.with_tasks(1, 64).at(Deployment::Etcd).named(
        "etcd-independent",
        "64 tasks, a lock each in etcd",
    ),
    SHARED.at(Deployment::Etcd).named(
        "etcd-contended",
        "64 tasks in one process, one lock in etcd, empty critical section",
    ),
    SHARED.with_tasks(2, 1).at(Deployment::Etcd).named(
        "etcd-ping-pong",
        "2 processes of one task, one lock in etcd: from release to acquisition in the other",
    ),
    OWN.at(Deployment::Zookeeper).named("zookeeper", "one task, one lock in ZooKeeper"),
    SHARED.at(Deployment::Zookeeper).named(
        "zookeeper-contended",
        "64 tasks in one process, one lock in ZooKeeper, empty critical section",
    ),
    SHARED.with_tasks(2, 1).at(Deployment::Zookeeper).named(
        "zookeeper-ping-pong",
        "2 processes of one task, one lock in ZooKeeper: from release to acquisition in the other",
    ),
    OWN.with_primitive(Primitive::Semaphore).named("permit", "one task, one of 5 permits"),
    SHARED.with_primitive(Primitive::Semaphore).named(
        "permits",
        "64 tasks in one process, 5 permits, empty critical section",
    ),
    SHARED.with_primitive(Primitive::RwLock).with_section().named(
        "reads",
        "64 tasks in one process, one read-write lock, 90 % reads, critical section of 1 ms",
    ),
];

impl Work {
    const fn named(self, name: &'static str, what: &'static str) -> Self {
        Self { name, what, ..self }
    }

    /// So many processes, each with so many tasks.
    const fn with_tasks(self, processes: usize, tasks: usize) -> Self {
        Self {
            processes,
            tasks,
            ..self
        }
    }

    /// A critical section of a millisecond.
    const fn with_section(self) -> Self {
        Self {
            section_us: 1_000,
            ..self
        }
    }

    const fn with_primitive(self, primitive: Primitive) -> Self {
        Self { primitive, ..self }
    }

    const fn at(self, deployment: Deployment) -> Self {
        Self { deployment, ..self }
    }
}

impl Primitive {
    /// The argument of a runner.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
            Self::RwLock => "rw-lock",
        }
    }
}

impl Deployment {
    /// The delay of a slow network, each way.
    pub(super) fn delay(self) -> Option<Duration> {
        match self {
            Self::DistantMasters | Self::DeadMaster => Some(Duration::from_millis(5)),
            _ => None,
        }
    }
}
