//! `leasehold ls`.

use leasehold::{Client, LockInfo};

use crate::args::{LsArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, output};

pub(crate) async fn ls(args: &LsArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    let locks = client.locks().await?;
    if args.json {
        let locks: Vec<_> = locks.iter().map(output::Lock::from).collect();
        output::json(&locks)?;
    } else if locks.is_empty() {
        note!("no locks are held at {}", client.store());
    } else {
        output::line(&table(&locks))?;
    }
    Ok(0)
}

fn table(locks: &[LockInfo]) -> String {
    let rows = locks.iter().map(|info| {
        [
            output::printable(&info.name),
            output::holder(info),
            output::age(info),
            duration::show(info.time_left),
            output::token(info),
            info.count.to_string(),
        ]
    });
    let header = ["NAME", "HOLDER", "HELD FOR", "TIME LEFT", "TOKEN", "COUNT"];
    output::table(header, rows, 2..)
}
