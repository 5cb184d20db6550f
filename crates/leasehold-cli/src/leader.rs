//! `leasehold leader`.

use leasehold::Client;

use crate::args::{LeaderArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::{self, Failure};
use crate::{json, misplaced, output, shell};

pub(crate) async fn leader(args: &LeaderArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    let election = client.election(&args.name)?;
    let leader = election.leader().await?;
    if leader.is_none() {
        misplaced::refuse_text("the name of the election", &args.name)?;
    }
    if args.json {
        let info = match leader {
            Some(_) => election.mutex().inspect().await?,
            None => None,
        };
        let leader = leader.as_ref().map(|leader| {
            // Another may lead meanwhile.
            let info = info.as_ref().filter(|info| info.lease == leader.lease);
            json::leader(leader, info.and_then(|info| info.client.as_ref()))
        });
        json::print(&json::object! {
            store: client.store().to_string(),
            name: &args.name,
            leader: leader,
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
    Ok(if leader.is_some() { 0 } else { exit::NONE })
}
