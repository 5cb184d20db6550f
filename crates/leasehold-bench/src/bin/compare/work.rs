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
pub(super) const WORKS: [Work; 20] = [
    OWN,
    Work {
        name: "pinned",
        what: "one task, one lock, client and server each on a core of its own",
        deployment: Deployment::Pinned,
        ..OWN
    },
    Work {
        name: "independent",
        what: "64 tasks, a lock each",
        tasks: 64,
        ..OWN
    },
    Work {
        name: "independent-256",
        what: "256 tasks, a lock each",
        tasks: 256,
        ..OWN
    },
    SHARED,
    Work {
        name: "processes",
        what: "4 processes of 16 tasks, one lock, empty critical section",
        processes: 4,
        tasks: 16,
        ..SHARED
    },
    Work {
        name: "working",
        what: "4 processes of 16 tasks, one lock, critical section of 1 ms",
        processes: 4,
        tasks: 16,
        section_us: 1_000,
        ..SHARED
    },
    Work {
        name: "ping-pong",
        what: "2 processes of one task, one lock: from release to acquisition in the other",
        processes: 2,
        tasks: 1,
        ..SHARED
    },
    Work {
        name: "masters",
        what: "one task, one lock over 5 masters",
        deployment: Deployment::Masters,
        ..OWN
    },
    Work {
        name: "masters-independent",
        what: "64 tasks, a lock each, over 5 masters",
        tasks: 64,
        deployment: Deployment::Masters,
        ..OWN
    },
    Work {
        name: "distant-masters",
        what: "one task, one lock over 5 masters, 5 ms away each way",
        deployment: Deployment::DistantMasters,
        ..OWN
    },
    Work {
        name: "dead-master",
        what: "one task, one lock over 5 masters, 5 ms away each way, one of them dead",
        deployment: Deployment::DeadMaster,
        ..OWN
    },
    Work {
        name: "cluster",
        what: "256 tasks, a lock each, in a cluster of three: its server time beside that of independent-256",
        tasks: 256,
        deployment: Deployment::Cluster,
        ..OWN
    },
    Work {
        name: "etcd",
        what: "one task, one lock in etcd",
        deployment: Deployment::Etcd,
        ..OWN
    },
    Work {
        name: "etcd-independent",
        what: "64 tasks, a lock each in etcd",
        tasks: 64,
        deployment: Deployment::Etcd,
        ..OWN
    },
    Work {
        name: "etcd-contended",
        what: "64 tasks in one process, one lock in etcd, empty critical section",
        deployment: Deployment::Etcd,
        ..SHARED
    },
    Work {
        name: "etcd-ping-pong",
        what: "2 processes of one task, one lock in etcd: from release to acquisition in the other",
        processes: 2,
        tasks: 1,
        deployment: Deployment::Etcd,
        ..SHARED
    },
    Work {
        name: "permit",
        what: "one task, one of 5 permits",
        primitive: Primitive::Semaphore,
        ..OWN
    },
    Work {
        name: "permits",
        what: "64 tasks in one process, 5 permits, empty critical section",
        primitive: Primitive::Semaphore,
        ..SHARED
    },
    Work {
        name: "reads",
        what: "64 tasks in one process, one read-write lock, 90 % reads, critical section of 1 ms",
        section_us: 1_000,
        primitive: Primitive::RwLock,
        ..SHARED
    },
];

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
