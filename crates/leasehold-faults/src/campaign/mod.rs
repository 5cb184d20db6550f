//! A campaign: rounds of worlds, each with faults drawn from the seed, each judged when it is over.

mod episodes;
mod fence;
mod holders;
mod options;
mod plan;
mod round;
mod sampler;
mod server;
mod servers;
mod world;

pub(crate) use self::options::{CampaignArgs, Size};

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::history;
use crate::judge::{self, Verdict};
use crate::report::Report;

/// Runs a campaign, prints what came of it, and writes the report if that is wanted. Answers whether
/// nothing was violated.
///
/// # Errors
///
/// What kept it from running to its end.
pub(crate) fn run(args: &CampaignArgs) -> Result<bool, String> {
    let size = args.size();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("{size}, seed {seed}");
    let begin = Instant::now();
    let mut all = Verdict::default();
    let mut kept = Vec::new();
    for round in 0..size.rounds {
        let (verdict, folders) = play(args, size, seed, round)?;
        println!(
            "round {} of {}: {}",
            round + 1,
            size.rounds,
            verdict.summary()
        );
        kept.extend(folders);
        all.add(verdict);
    }
    let report = Report::new(size, seed, begin.elapsed(), &all);
    println!("\n{}", report.markdown());
    for violation in &all.violations {
        println!("VIOLATION {violation}");
    }
    for folder in &kept {
        println!("the history is kept in {}", folder.display());
    }
    if let Some(folder) = &args.report {
        report.write(folder)?;
    }
    Ok(all.violations.is_empty())
}

/// Plays a round and judges it. Answers the folders of the histories in which something is wrong.
fn play(
    args: &CampaignArgs,
    size: Size,
    seed: u64,
    round: u64,
) -> Result<(Verdict, Vec<PathBuf>), String> {
    let failed = |error: std::io::Error| format!("the histories: {error}");
    // Where temporary files are: a holder must not wait for a disk in the middle of a step.
    let folder = tempfile::tempdir().map_err(failed)?;
    let mut all = Verdict::default();
    let mut kept = Vec::new();
    for (number, world) in round::play(folder.path(), size, seed, round)?
        .iter()
        .enumerate()
    {
        let verdict = judge::judge(&history::read(world)?);
        if args.keep || !verdict.violations.is_empty() {
            let place = args.histories.join(format!("{seed}-{round}-{number}"));
            copy(world, &place).map_err(failed)?;
            kept.push(place);
        }
        all.add(verdict);
    }
    Ok((all, kept))
}

/// Copies the files of a folder, in the place of those of an earlier campaign.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
