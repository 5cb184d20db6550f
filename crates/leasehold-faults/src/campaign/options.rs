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
    /// Run worlds of this kind only.
    #[arg(long)]
    pub(crate) only: Option<Kind>,
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

/// A kind of world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// A single server.
    Single,
    /// Many masters.
    Masters,
}

/// How many rounds of how many worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rounds: u64,
    pub(crate) worlds: u64,
    /// The worlds with many masters, beside the others.
    pub(crate) masters: u64,
    pub(crate) round_ms: u64,
}

impl CampaignArgs {
    pub(super) fn size(&self) -> Size {
        let rounds = match self.form {
            Form { long: true, .. } => 30,
            Form { minutes, .. } => minutes.unwrap_or(0),
        };
        let mut size = match rounds {
            0 => Size {
                rounds: 1,
                worlds: 8,
                masters: 2,
                round_ms: 20_000,
            },
            _ => Size {
                rounds,
                worlds: 12,
                masters: 4,
                round_ms: 60_000,
            },
        };
        match self.only {
            Some(Kind::Single) => size.masters = 0,
            Some(Kind::Masters) => size.worlds = 0,
            None => {}
        }
        size
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.round_ms / 1000;
        let (rounds, worlds, masters) = (self.rounds, self.worlds, self.masters);
        write!(
            f,
            "{rounds} × {seconds} s, {worlds} servers and {masters} sets of masters side by side"
        )
    }
}
