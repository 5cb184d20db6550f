//! A campaign: rounds of worlds, each with faults drawn from the seed, each judged when it is over.

mod fence;
mod holders;
mod options;
mod plan;
mod round;
mod sampler;
mod server;
mod world;

pub(crate) use self::options::{CampaignArgs, Size};

use std::fs;
use std::path::PathBuf;
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
    let folder = args.histories.join(format!("{seed}-{round}"));
    // Of an earlier campaign with this seed.
    let _ = fs::remove_dir_all(&folder);
    let worlds = round::play(&folder, size, seed, round)?;
    let mut all = Verdict::default();
    let mut kept = Vec::new();
    for world in worlds {
        let verdict = judge::judge(&history::read(&world)?);
        if verdict.violations.is_empty() && !args.keep {
            fs::remove_dir_all(&world).map_err(|error| error.to_string())?;
        } else {
            kept.push(world);
        }
        all.add(verdict);
    }
    if kept.is_empty() {
        let _ = fs::remove_dir(&folder);
    }
    Ok((all, kept))
}
