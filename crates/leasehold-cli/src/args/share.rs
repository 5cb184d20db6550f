//! The options of several locks, and of locks that several may hold at the same time, which `run` and `hold` have in common.

use clap::Args;

/// How many locks are held, and how many may hold them at the same time.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sharing")]
#[group(id = "share", multiple = true)]
pub(crate) struct ShareArgs {
    /// Also hold the lock with this name, which has no comma: all or none; repeat it for more
    #[arg(long, value_name = "NAME", conflicts_with_all = ["shared", "exclusive", "permits"])]
    pub(crate) and: Vec<String>,
    /// Hold a read-write lock as one of its readers, together with other --shared ones
    #[arg(long, conflicts_with_all = ["exclusive", "permits"])]
    pub(crate) shared: bool,
    /// Hold a read-write lock as its writer, alone
    #[arg(long, conflicts_with = "permits")]
    pub(crate) exclusive: bool,
    /// Hold a permit of a semaphore that has so many, the same number everywhere
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) permits: Option<u32>,
    /// Hold several of these permits; 1 if not given
    #[arg(long, value_name = "N", requires = "permits", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) weight: Option<u32>,
    /// Give the command a number from 0 on in LEASEHOLD_SLOT that no other holder has
    #[arg(long, requires = "permits")]
    pub(crate) numbered: bool,
}

impl ShareArgs {
    /// Whether one of them is given.
    pub(crate) fn is_given(&self) -> bool {
        self.shared || self.exclusive || self.permits.is_some() || !self.and.is_empty()
    }
}
