//! One round: all its worlds at the same time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use super::fence::Fence;
use super::holders::{Seat, Spawner};
use super::options::Size;
use super::plan::{NAMES, Plan};
use super::servers::Servers;
use super::world::World;
use super::{sampler, server};
use crate::clock;
use crate::history::{Journal, Note};

/// How far the wall clock may drift from the other in a round without having been set.
const WALL_DRIFT_MAX: u64 = clock::MILLI / 2;

/// Plays a round. Answers the folders of its histories.
pub(super) fn play(
    folder: &Path,
    size: Size,
    seed: u64,
    round: u64,
) -> Result<Vec<PathBuf>, String> {
    let mut worlds = Vec::new();
    let single = |number| Plan::draw(seed, round, number, size.round_ms);
    let masters = |number| Plan::draw_masters(seed, round, number, size.round_ms);
    let plans = (0..size.worlds).map(single);
    for (number, plan) in plans.chain((0..size.masters).map(masters)).enumerate() {
        worlds.push(prepare(folder.join(format!("world-{number}")), plan)?);
    }
    let folders = worlds.iter().map(|world| world.folder.clone()).collect();
    let wall = clock::wall_offset();
    let (spawner, orders) = channel();
    thread::scope(|scope| {
        let played: Vec<_> = worlds
            .iter_mut()
            .map(|world| {
                let spawner = spawner.clone();
                scope.spawn(move || live(world, &spawner))
            })
            .collect();
        drop(spawner);
        // Holders die with the thread that started them, so that is this one.
        for (mut command, answer) in orders {
            let _ = answer.send(command.spawn());
        }
        played.into_iter().try_for_each(|world| {
            let ended = world
                .join()
                .map_err(|_| "a world ended in a panic".to_owned());
            ended.and_then(|outcome| outcome)
        })
    })?;
    if clock::wall_offset().abs_diff(wall) > WALL_DRIFT_MAX {
        for world in &worlds {
            world.note(&Note::WallMoved);
        }
    }
    Ok(folders)
}

fn prepare(folder: PathBuf, plan: Plan) -> Result<World, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let journal = Journal::open(&folder.join("campaign.jsonl")).map_err(failed)?;
    let journal = Arc::new(journal);
    let world = World {
        fence: Fence::start(Arc::clone(&journal)).map_err(failed)?.port,
        servers: Servers::start(&plan),
        begin: Instant::now(),
        plan,
        folder,
        journal,
    };
    world.note(&Note::World {
        names: NAMES.map(str::to_owned).to_vec(),
        wall: (!world.plan.clock).then(clock::wall_offset),
        servers: world.plan.servers,
    });
    Ok(world)
}

/// Lets everything that belongs to a world happen.
fn live(world: &mut World, spawner: &Spawner) -> Result<(), String> {
    world.begin = Instant::now();
    let world = &*world;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| sampler::run(world, &stop));
        let seats: Vec<_> = (0..world.plan.holders.len())
            .map(|number| {
                let seat = Seat::new(world, number, spawner.clone());
                scope.spawn(|| seat.run())
            })
            .collect();
        let lanes = world.plan.lanes.iter();
        let lanes: Vec<_> = lanes
            .map(|lane| scope.spawn(|| server::run(world, lane)))
            .collect();
        let mut ended = Ok(());
        for thread in lanes.into_iter().chain(seats) {
            let outcome = thread
                .join()
                .map_err(|_| "a thread of a world ended in a panic".to_owned());
            ended = ended.and(outcome.and_then(|outcome| outcome));
        }
        stop.store(true, Ordering::Relaxed);
        ended
    })?;
    sampler::look_for_leftovers(world)
}
