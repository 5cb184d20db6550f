//! How large a campaign is.

use std::fmt;
use std::path::PathBuf;

/// What the campaign is told on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct CampaignArgs {
    /// Draw the faults from this number; a random one if it is not given.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How much of it there is.
    #[command(flatten)]
    pub(crate) form: Form,
    /// Write the report into this folder.
    #[arg(long)]
    pub(crate) report: Option<PathBuf>,
    /// Where the histories are kept in which something is wrong.
    #[arg(long, default_value = "target/faults")]
    pub(crate) histories: PathBuf,
    /// Keep the histories even if nothing is wrong in them.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// The forms of a campaign; the short one if none is given.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Form {
    /// One round of 20 s.
    #[arg(long)]
    pub(crate) short: bool,
    /// Rounds of a minute.
    #[arg(long)]
    pub(crate) minutes: Option<u64>,
    /// 30 rounds of a minute.
    #[arg(long)]
    pub(crate) long: bool,
}

/// How many rounds of how many worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rounds: u64,
    pub(crate) worlds: u64,
    pub(crate) round_ms: u64,
}

impl CampaignArgs {
    pub(super) fn size(&self) -> Size {
        let rounds = match self.form {
            Form { long: true, .. } => 30,
            Form { minutes, .. } => minutes.unwrap_or(0),
        };
        if rounds == 0 {
            return Size {
                rounds: 1,
                worlds: 8,
                round_ms: 20_000,
            };
        }
        Size {
            rounds,
            worlds: 12,
            round_ms: 60_000,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.round_ms / 1000;
        let (rounds, worlds) = (self.rounds, self.worlds);
        write!(f, "{rounds} × {seconds} s, {worlds} servers side by side")
    }
}
