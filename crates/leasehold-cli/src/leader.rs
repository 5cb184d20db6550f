//! `leasehold leader`.

use leasehold::{Client, Leader, LockInfo};
use serde::Serialize;

use crate::args::{LeaderArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{json, misplaced, output, shell};

/// There is no leader.
const NONE: u8 = 1;

/// The output of `leader --json`.
#[derive(Debug, Serialize)]
struct Leadership<'a> {
    store: String,
    name: &'a str,
    leader: Option<json::Leader<'a>>,
}

pub(crate) async fn leader(args: &LeaderArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    let election = client.election(&args.name)?;
    let leader = election.leader().await?;
    if leader.is_none() {
        misplaced::refuse_text("the name of the election", &args.name)?;
    }
    if args.json {
        // Another may lead meanwhile.
        let of_leader = |leader: &Leader, info: &LockInfo| info.lease == leader.lease;
        let info = match &leader {
            Some(leader) => election
                .mutex()
                .inspect()
                .await?
                .filter(|info| of_leader(leader, info)),
            None => None,
        };
        let holder = info.as_ref().and_then(|info| info.client.as_ref());
        let leader = leader.as_ref();
        json::print(&Leadership {
            store: client.store().to_string(),
            name: &args.name,
            leader: leader.map(|leader| json::Leader::new(leader, holder)),
        })?;
    } else if let Some(leader) = &leader {
        output::print_line(&output::printable(&leader.value))?;
    } else {
        let (name, place) = (&args.name, store.place(client.store()));
        match election.mutex().inspect().await? {
            Some(_) => note!(
                "leasehold: {name} has no leader at {place}: it is held, without a value; leasehold show {} shows the holder",
                shell::quote(name)
            ),
            None => note!("leasehold: {name} has no leader at {place}"),
        }
    }
    Ok(if leader.is_some() { 0 } else { NONE })
}
